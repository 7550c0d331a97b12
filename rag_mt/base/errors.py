"""The one error that users cause: a sentence that names the value, what was expected and what to do next."""

from __future__ import annotations


class UserError(Exception):
    """A mistake of the user or of their surroundings; commands print its one sentence and exit with code 2."""

    @property
    def public(self) -> str:
        """The sentence for those who ask a server, who are not told what is its operator's alone."""
        return str(self)


class AwayError(UserError):
    """An index in an engine that does not answer: its server or store is down, out of reach, or too slow. `public` does
    not say where it is."""

    @property
    def public(self) -> str:
        """See `UserError.public`."""
        return "the index that hints come from does not answer: try again later"


class NoSuchFileError(UserError):
    """An index has no file of those that are asked for. Its sentence says where the index is and which files it has;
    `public` says neither."""

    def __init__(self, message: str, public: str) -> None:
        super().__init__(message, public)

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def public(self) -> str:
        """See `UserError.public`."""
        return str(self.args[1])


class DamagedFileError(UserError, ValueError):
    """A file that this program wrote and that is not what it wrote any more."""
