"""Which files of an index are looked at: what is known of a file, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import PurePath, PurePosixPath
from typing import Any

from rag_mt.base.errors import UserError

MOST_SHOWN = 8
"""Domains that a sentence names."""
LONGEST_DOMAIN = 100
"""Characters of the name of a domain."""

Labels = Mapping[str, Mapping[str, str]]
"""By the name of a file what is known of it: `domain`, `date`, one of them or both."""


@dataclass(frozen=True, slots=True)
class Label:
    """What is said of files: their `domain` and their `date` (YYYY-MM-DD), each empty where nothing is said. Raises
    UserError for a domain that is no line of text and for what is no date."""

    domain: str = ""
    date: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "domain", checked_domain(self.domain) if self.domain else "")
        object.__setattr__(self, "date", checked_date(self.date) if self.date else "")

    def as_dict(self) -> dict[str, str]:
        """What is said, JSON-able."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True, init=False)
class Only:
    """Which files of an index are looked at: those with a name that matches one of the patterns `files`, of one of the
    `domains`, with a date from `since` to `until` (YYYY-MM-DD, both included). What is empty leaves nothing out.

    A pattern is the name of a file as the index has it, or has `*`, `?` and `[...]` for parts of it, slashes too; one
    without a slash is also compared with the name without its folders. One pattern or domain may be given as it is; a
    path is the pattern of its text. Those that name the same in another order are equal. Raises UserError for what is
    no pattern, domain or date, and for dates in the wrong order.
    """

    files: tuple[str, ...]
    domains: tuple[str, ...]
    since: str
    until: str

    def __init__(
        self,
        files: str | PurePath | Iterable[str | PurePath] = (),
        domains: str | Iterable[str] = (),
        since: str | date = "",
        until: str | date = "",
    ) -> None:
        object.__setattr__(self, "files", _sorted("files", files, _checked_pattern))
        object.__setattr__(self, "domains", _sorted("domains", domains, checked_domain))
        object.__setattr__(self, "since", checked_date(since) if since else "")
        object.__setattr__(self, "until", checked_date(until) if until else "")
        if self.since and self.until and self.since > self.until:
            raise UserError(f"no day is since {self.since} and until {self.until}: give the earlier one as since")

    def __bool__(self) -> bool:
        """Whether anything is asked."""
        return any((self.files, self.domains, self.since, self.until))

    def __str__(self) -> str:
        """What is asked, in words."""
        parts = [f"named {' or '.join(self.files)}"] if self.files else []
        parts += [f"of the domain {' or '.join(self.domains)}"] if self.domains else []
        dates = [f"{name} {value}" for name, value in (("since", self.since), ("until", self.until)) if value]
        return ", ".join([*parts, *([f"dated {' '.join(dates)}"] if dates else [])])

    def among(self, files: Iterable[str], labels: Labels) -> list[str]:
        """Those of the files that are looked at; one without a domain is of none that is asked for, and one without a
        date has none in any time."""
        return [name for name in files if self._named(name) and self._labelled(labels.get(name, {}))]

    def _named(self, name: str) -> bool:
        return not self.files or any(is_named(name, pattern) for pattern in self.files)

    def _labelled(self, label: Mapping[str, str]) -> bool:
        if self.domains and label.get("domain") not in self.domains:
            return False
        if not (self.since or self.until):
            return True
        day = label.get("date", "")
        return bool(day) and self.since <= day and (not self.until or day <= self.until)


def is_named(name: str, pattern: str) -> bool:
    """Whether a pattern (see `Only`) matches the name of a file."""
    plain = name if "/" in pattern else PurePosixPath(name).name
    return pattern in (name, plain) or fnmatchcase(name, pattern) or fnmatchcase(plain, pattern)


def _sorted(kind: str, values: Any, checked: Callable[[Any], str]) -> tuple[str, ...]:
    """One value or several, each as `checked` makes it and once; raises UserError for an empty one of the kind."""
    alone = isinstance(values, str | bytes | PurePath) or not isinstance(values, Iterable)
    several = [] if values is None else [values] if alone else list(values)
    if "" in several:
        raise UserError(f"an empty text is among the {kind} to look at: leave it out, or name one")
    return tuple(sorted({checked(value) for value in several}))


def _checked_pattern(pattern: str | PurePath) -> str:
    if not isinstance(pattern, str | PurePath):
        raise UserError(f"{pattern!r} is no name of a file: expected a text or a path, such as news.txt or 2024/*")
    return str(pattern)


def checked_domain(text: str) -> str:
    """The name of a domain without spaces around it; raises UserError for one that is no line of text."""
    name = text.strip() if isinstance(text, str) else ""
    if not name or not name.isprintable() or len(name) > LONGEST_DOMAIN:
        raise UserError(f"{text!r} is no name of a domain: expected a word or a few, such as law")
    return name


def checked_date(text: str | date) -> str:
    """A day as YYYY-MM-DD; raises UserError for a text that is none."""
    if isinstance(text, date):
        return text.isoformat()[: len("YYYY-MM-DD")]  # of a datetime without its time
    try:
        return datetime.strptime(text, "%Y-%m-%d").date().isoformat()
    except (ValueError, TypeError):
        raise UserError(f"{text!r} is no date: expected year, month and day, such as 2024-05-31") from None


EVERY = Only()
"""Nothing is left out."""


def labelled(
    labels: Labels, files: Iterable[str], new: Iterable[str], label: Label, place_of: Callable[[str], str]
) -> dict[str, dict[str, str]]:
    """What is known of the `files` of an index: what was, and of those that are `new` what the label says. `place_of`
    tells what all names of a file have in common: what was known of a new one by another name is known of it still."""
    there, added = sorted(set(files)), set(new)
    known = {name: dict(labels.get(name, {})) for name in there}
    places = {place_of(name): entry for name, entry in labels.items()}
    for name in added.intersection(there):
        before = known[name] or (places.get(place_of(name), {}) if places else {})
        known[name] = {**before, **label.as_dict()}
    return {name: entry for name, entry in known.items() if entry}


def in_words(labels: Labels) -> str:
    """The domains of files and the days that they are from, such as `domains law, news; dates 2019-01-01 to
    2024-05-31`; empty where none is known."""
    domains = sorted({label["domain"] for label in labels.values() if "domain" in label})
    dates = sorted({label["date"] for label in labels.values() if "date" in label})
    shown = [*domains[:MOST_SHOWN], *(["..."] if len(domains) > MOST_SHOWN else [])]
    parts = [f"domains {', '.join(shown)}"] if domains else []
    return "; ".join([*parts, *([f"dates {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}"] if dates else [])])
