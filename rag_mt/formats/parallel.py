"""Parallel corpora: sentence pairs in files of two columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.opening import read_lines

_COLUMNS = re.compile(r"\t| \|\|\| ")


@dataclass
class Corpus:
    """Sentence pairs column by column, with their lines in the file; `origins` name the collections that they come
    from."""

    lines: list[int] = field(default_factory=list)
    domains: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self, rows: Sequence[int]) -> Corpus:
        """Those pairs."""
        columns = (self.lines, self.domains, self.sources, self.targets, self.origins)
        return Corpus(*([column[n] for n in rows] for column in columns))  # type: ignore[arg-type]

    def extend(self, other: Corpus) -> None:
        """Add the pairs of another corpus."""
        self.lines += other.lines
        self.domains += other.domains
        self.sources += other.sources
        self.targets += other.targets
        self.origins += other.origins

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return list(zip(self.sources, self.targets, strict=True))


def training_file(data: Path, pair: str) -> Path:
    """`DIR/train/PAIR.tsv`, maybe compressed; raises UserError if there is none."""
    files = [p for ending in ("", ".xz", ".gz", ".zst") if (p := data / "train" / f"{pair}.tsv{ending}").is_file()]
    if not files:
        raise UserError(f"there is no train/{pair}.tsv or train/{pair}.tsv.xz in {data}: give the folder that holds it")
    return files[0]


def read_corpus(path: Path, skips: Skips) -> Corpus:
    """The pairs of a file with English in the first column, the other language in the second and maybe a domain in the
    third and the collection in the fourth: the other language is the source. Lines with an empty or missing column go
    to `skips`."""
    corpus = Corpus()
    for line in read_lines(path, skips):
        if line.text is None:
            continue
        english, other, domain, origin, *_ = [*line.text.split("\t"), "", "", "", ""]
        if english.strip() and other.strip():
            corpus.lines.append(line.number)
            corpus.domains.append(domain)
            corpus.sources.append(other)
            corpus.targets.append(english)
            corpus.origins.append(origin)
        else:
            skips.add(Origin(str(path), line.number), "without two columns of text")
    return corpus


def letters_and_digits(text: str) -> str:
    """The letters and digits of a text, casefolded: what stays equal under tokenisation and typography."""
    return "".join(filter(str.isalnum, text.casefold()))


def excluded_texts(paths: Iterable[Path], skips: Skips) -> set[str]:
    """The `letters_and_digits` of all columns of some files (tabs or ` ||| ` between them).

    Raises UserError for a missing file.
    """
    return {
        letters_and_digits(column)
        for path in paths
        for line in read_lines(existing_file(path), skips)
        if line.text is not None
        for column in _COLUMNS.split(line.text)
    } - {""}


def existing_file(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"there is no file {path} to exclude: give TSV files or files with ` ||| ` between columns")
    return path
