"""Settings of a training run from a TOML file: one frozen dataclass per section, checked key by key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from rag_mt.errors import UserError
from rag_mt.fingerprints import read_toml

T = TypeVar("T")


def read_settings(kind: type[T], path: Path, changes: Mapping[str, str], example: str) -> T:
    """The settings `kind`, a dataclass of sections, from a file with `changes` (`training.steps` -> `100`, values as in
    TOML) on top.

    Raises UserError for a file that is missing (`example` is one to try) or no TOML, and for settings that do not
    exist or are of another type.
    """
    found = read_toml(path, "configuration", example)
    sections = get_type_hints(kind)
    for name, text in changes.items():
        section, _, key = name.partition(".")
        try:
            value = tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            value = text
        own = found.setdefault(section, {})
        if isinstance(own, dict):
            own[key] = value
    for section, values in found.items():
        if section not in sections or not isinstance(values, dict):
            raise UserError(f"{path} has no section [{section}] that is known: expected {', '.join(sections)}")
    return kind(**{name: _section(path, name, part, found.get(name, {})) for name, part in sections.items()})


def changes_of(texts: Sequence[str]) -> dict[str, str]:
    """What `--set SECTION.KEY=VALUE` asks for; raises UserError for a text of another form."""
    for text in texts:
        if "=" not in text or "." not in text.partition("=")[0]:
            raise UserError(f"--set {text!r} changes nothing: expected SECTION.KEY=VALUE, such as training.steps=100")
    return dict(text.split("=", 1) for text in texts)


def _section(path: Path, name: str, kind: type[Any], found: Mapping[str, Any]) -> Any:
    assert is_dataclass(kind)
    defaults: Any = kind()
    values: dict[str, Any] = {}
    for key, value in found.items():
        if not hasattr(defaults, key):
            known = ", ".join(f.name for f in fields(kind))
            raise UserError(f"{path} sets {name}.{key}, which does not exist: expected one of {known}")
        default = getattr(defaults, key)
        fits = isinstance(value, type(default)) or default is None
        if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            fits = True
        if isinstance(default, tuple):
            fits, value = isinstance(value, list), tuple(value) if isinstance(value, list) else value
        if isinstance(default, int) and isinstance(value, bool) != isinstance(default, bool):
            fits = False
        if not fits:
            raise UserError(
                f"{path} sets {name}.{key} to {value!r}: expected {type(default).__name__}, such as {default!r}"
            )
        values[key] = value
    return kind(**values)
