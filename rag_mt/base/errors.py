"""The one error that users cause: a sentence that names the value, what was expected and what to do next."""

from __future__ import annotations


class UserError(Exception):
    """A mistake of the user or of their surroundings; commands print its one sentence and exit with code 2."""


class AwayError(UserError):
    """An index in an engine that does not answer: its server or store is down, out of reach, or too slow."""


class DamagedFileError(UserError, ValueError):
    """A file that this program wrote and that is not what it wrote any more."""
