"""What one user may ask of a server that many share, and the errors that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from rag_mt.base.errors import UserError


class LimitError(UserError):
    """More was asked for than is allowed: less of it may work."""


class TooLargeError(LimitError):
    """An upload has more bytes than are allowed."""


class MissingError(UserError):
    """There is nothing of that id that belongs to who asks."""


class BusyError(UserError):
    """The server has enough to do: the same may work `retry_after` seconds later."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoppedError(UserError):
    """The server cannot translate any more until it is started again."""


@dataclass(frozen=True)
class Limits:
    """Numbers that the operator can change.

    Characters of all texts of a request (`text_chars`) and their number (`texts`); bytes of a file to translate
    (`file_bytes`) and of the files of one index (`index_bytes`); `requests` of one client in a minute; `indexes` and
    `documents`, running or finished, of one owner (for clients of the API without a key: from one address),
    `all_indexes` and `all_documents` of all; texts that wait (`queue`);
    sentences that a model reads at once (`batch`); `translators` and `llms` that stay in memory.
    """

    text_chars: int = 5000
    texts: int = 50
    file_bytes: int = 2_000_000
    index_bytes: int = 20_000_000
    requests: int = 3000
    indexes: int = 5
    all_indexes: int = 100
    documents: int = 5
    all_documents: int = 50
    queue: int = 64
    batch: int = 16
    translators: int = 24
    llms: int = 6

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise UserError(f"limit {name} is {value}: expected a whole number of at least 1")

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raise LimitError if a request has too many or too long texts."""
        if len(texts) > self.texts:
            raise LimitError(
                f"the request has {len(texts)} texts and at most {self.texts} are allowed: send fewer at once"
            )
        chars = sum(map(len, texts))
        if chars > self.text_chars:
            raise LimitError(
                f"the text has {chars} characters and at most {self.text_chars} are allowed: "
                "shorten it or send it as a file"
            )

    def check_file(self, size: int, most: int | None = None) -> None:
        """Raise LimitError if a file (or the files of an index, with `index_bytes`) has too many bytes."""
        most = self.file_bytes if most is None else most
        if size > most:
            raise TooLargeError(f"the upload has {size} bytes and at most {most} are allowed: split it")


def limits_of(texts: Sequence[str]) -> Limits:
    """The limits with changes such as `text_chars=2000`; raises UserError for another name or value."""
    names = [f.name for f in fields(Limits)]
    changes: dict[str, int] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in names or not value.isdecimal():
            raise UserError(f"--limit {text!r} changes nothing: expected NAME=NUMBER with one of {', '.join(names)}")
        changes[name] = int(value)
    return Limits(**changes)
