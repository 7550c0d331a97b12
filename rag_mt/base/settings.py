"""Settings from a TOML file: one frozen dataclass per section, checked key by key."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_toml

T = TypeVar("T")

SHIPPED = Path(__file__).parents[1] / "configs"
"""The settings that come with rag_mt, files `NAME.toml`."""

WORDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "dict_type": "a table",
}
"""What a value of a type is, as said to a user, by the kind of error."""


def read_settings(kind: type[T], path: Path, changes: Mapping[str, str], example: str) -> T:
    """The settings `kind`, a dataclass of sections, themselves dataclasses, from a file with `changes`
    (`training.steps` -> `100`, values as in TOML) on top.

    Raises UserError for a file that is missing (`example` is the name of shipped ones to try) or no TOML, and
    for settings that do not exist or are of another type.
    """
    table = read_toml(path, "configuration", f"--config {example}")
    sections = get_type_hints(kind)
    for name, text in changes.items():
        section, _, key = name.partition(".")
        try:
            value = tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            value = text
        settings = table.setdefault(section, {})
        if isinstance(settings, dict):
            settings[key] = value
    for section, values in table.items():
        if section not in sections or not isinstance(values, dict):
            raise UserError(f"{path} has no section [{section}] that is known: expected {', '.join(sections)}")
    return kind(**{name: _section(path, name, part, table.get(name, {})) for name, part in sections.items()})


def shipped_configs() -> list[str]:
    """The names of the settings that come with rag_mt, as `--config NAME` takes them."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def config_file(name: str) -> Path:
    """The file of the settings `name`: a bare name is one of `shipped_configs`, all else a path. Raises UserError for a
    bare name that does not ship; a path that is not there is reported when it is read."""
    if Path(name).name != name or Path(name).suffix == ".toml":
        return Path(name).expanduser()
    if name not in shipped_configs():
        raise UserError(
            f"no settings called {name!r} come with rag_mt: give a file such as {name}.toml, or one of "
            f"{', '.join(shipped_configs())}"
        )
    return SHIPPED / f"{name}.toml"


def folder_of_paths(path: Path) -> Path:
    """The folder that the paths in a file of settings start from: the file's own; for settings that come with rag_mt
    the current one."""
    return Path() if path.resolve().parent == SHIPPED.resolve() else path.parent


def changes_of(texts: Sequence[str]) -> dict[str, str]:
    """What `--set SECTION.KEY=VALUE` asks for; raises UserError for a text of another form."""
    for text in texts:
        if "=" not in text or "." not in text.partition("=")[0]:
            raise UserError(f"--set {text!r} changes nothing: expected SECTION.KEY=VALUE, such as training.steps=100")
    return dict(text.split("=", 1) for text in texts)


def shown_changes(texts: Sequence[str]) -> str:
    """The options that made such changes, for the record: files and folders by their last name."""
    options = []
    for name, value in changes_of(texts).items():
        path = Path(value.strip("\"'"))
        options.append(f" --set {name}={path.name if path.is_absolute() or path.exists() else value}")
    return "".join(options)


def shown_path(text: str) -> str:
    """A path as it is recorded: as it was given, or by its last name if it begins at the root."""
    return Path(text).name if Path(text).is_absolute() else text


def _section(path: Path, name: str, kind: Any, settings: Mapping[str, Any]) -> Any:
    defaults = kind()
    types = get_type_hints(kind)
    known = [f.name for f in fields(kind)]
    for key, value in settings.items():
        if key not in known:
            raise UserError(f"{path} sets {name}.{key}, which does not exist: expected one of {', '.join(known)}")
        _check_type(path, f"{name}.{key}", value, types[key], getattr(defaults, key))
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()})


def _check_type(path: Path, name: str, value: Any, kind: Any, example: Any) -> None:
    """Raise UserError for a value, or the first one within it, that is of another type: a whole number is a float too.

    Values are read as in JSON, where lists are tuples and nothing is turned into another type. The value stays as it
    was written.
    """
    try:
        TypeAdapter(kind).validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in first["loc"])
        wanted = WORDS.get(first["type"], first["msg"])
        if first["type"] == "literal_error":
            wanted = f"one of {', '.join(get_args(kind))}"
        such = f", such as {json.dumps(example)}" if example and not place and not isinstance(example, bool) else ""
        shown = first["input"] if place else value
        raise UserError(f"{path} sets {name}{place} to {shown!r}: expected {wanted}{such}") from None
