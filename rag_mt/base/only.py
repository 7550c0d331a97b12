"""Which files of an index are looked at: what is known of a file, and what is asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

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


@dataclass(frozen=True, slots=True)
class Only:
    """Which files of an index are looked at: those with a name that matches one of the patterns `files`, of one of the
    `domains`, with a date from `since` to `until` (YYYY-MM-DD, both included). What is empty leaves nothing out.

    A pattern is the name of a file as the index has it, or has `*`, `?` and `[...]` for parts of it, slashes too; one
    without a slash is also compared with the name without its folders. Raises UserError for a domain or date that is
    none, and for dates in the wrong order.
    """

    files: Sequence[str] = ()
    domains: Sequence[str] = ()
    since: str = ""
    until: str = ""

    def __post_init__(self) -> None:
        for name in ("files", "domains"):
            values = getattr(self, name)
            values = (values,) if isinstance(values, str) else tuple(dict.fromkeys(values or ()))
            if "" in values:
                raise UserError(f"an empty text is among the {name} to look at: leave it out, or name one")
            object.__setattr__(self, name, values)
        object.__setattr__(self, "domains", tuple(dict.fromkeys(map(checked_domain, self.domains))))
        for name in ("since", "until"):
            value = getattr(self, name)
            object.__setattr__(self, name, checked_date(value) if value else "")
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
    return pattern == name or fnmatchcase(name, pattern) or fnmatchcase(plain, pattern)


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


def labelled(labels: Labels, files: Iterable[str], new: Iterable[str], label: Label) -> dict[str, dict[str, str]]:
    """What is known of the `files` of an index: what was, and of those that are `new` what the label says."""
    there, added = set(files), set(new) if label.as_dict() else set()
    known = {name: {**labels.get(name, {}), **(label.as_dict() if name in added else {})} for name in sorted(there)}
    return {name: entry for name, entry in known.items() if entry}


def in_words(labels: Labels) -> str:
    """The domains of files and the days that they are from, such as `domains law, news; dates 2019-01-01 to
    2024-05-31`; empty where none is known."""
    domains = sorted({label["domain"] for label in labels.values() if "domain" in label})
    dates = sorted({label["date"] for label in labels.values() if "date" in label})
    shown = [*domains[:MOST_SHOWN], *(["..."] if len(domains) > MOST_SHOWN else [])]
    parts = [f"domains {', '.join(shown)}"] if domains else []
    return "; ".join([*parts, *([f"dates {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}"] if dates else [])])
