"""What translation is measured on: sentence pairs by direction, and a fixed sample of them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from eval.data.domains import DOMAINS, SPLITS, blocks_of, cell_file, languages_of
from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.languages import DIRECTIONS, base_code, language
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.format import Segment, Side
from rag_mt.formats.opening import read_lines
from rag_mt.formats.parallel import read_corpus
from rag_mt.formats.reading import hub_segments
from rag_mt.formats.registry import format_named, format_of
from rag_mt.formats.tmx import TMX

log = logging.getLogger("rag_mt")

SEED = 12345
SAMPLE = "sample"
QUICK = "quick form: measures nothing"
"""The label of the sample corpus: it was written for this program, and a few hundred of its lines say little."""

FOLDERS = {"wmt16": ("test", "test"), "dev": ("dev", "validation")}
"""The suites of the 12 directions: their folder in the data and their split of `hf:wmt16`."""

HUB_ROWS = {"fi": 3000}
"""How many rows of `hf:wmt16@test` are newstest2016: behind the Finnish ones stand newstestB2016, other translations of
the same English sentences."""

USUAL_HEADS = (("source", "src"), ("target", "tgt", "reference", "ref", "translation"))
"""What headers of a table call the two columns where they do not name languages."""

NAMED = (SAMPLE, *FOLDERS, *SPLITS)
"""The suites that are no file."""

Row = tuple[int, str, str]


class Cell(NamedTuple):
    """A direction, in the suites of domains that of one domain."""

    source: str
    target: str
    domain: str = ""

    @property
    def direction(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def name(self) -> str:
        """`de-en`, in a domain `help.de-en`."""
        return f"{self.domain}.{self.direction}" if self.domain else self.direction


@dataclass(frozen=True)
class Part:
    """Sentence pairs of one cell: `lines` of their file, sources and references, out of `available` pairs. `blocks`
    names the run of consecutive sentences that each stands in, where that is known."""

    cell: Cell
    lines: tuple[int, ...]
    sources: tuple[str, ...]
    references: tuple[str, ...]
    available: int
    blocks: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        return self.cell.source

    @property
    def target(self) -> str:
        return self.cell.target

    @property
    def name(self) -> str:
        return self.cell.name

    @property
    def sha256(self) -> str:
        """A hash of all sources and references in order."""
        pairs = list(zip(self.sources, self.references, strict=True))
        return hashlib.sha256(json.dumps(pairs, ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True)
class Suite:
    """A named set of cells; `read` gives all pairs (line, source, reference) of one of them, `blocks` the blocks of
    some of them. `label` is what a reader must know first."""

    name: str
    cells: tuple[Cell, ...]
    read: Callable[[Cell], list[Row]]
    label: str = ""
    blocks: Callable[[Cell, Sequence[Row]], tuple[str, ...]] | None = None

    @property
    def quick(self) -> bool:
        return self.name == SAMPLE

    def part(self, source: str, target: str, limit: int | None = None, seed: int = SEED, domain: str = "") -> Part:
        """The pairs of a cell, or a sample of `limit` of them; raises UserError if there is none."""
        cell = Cell(source, target, domain)
        rows = self.read(cell)
        if not rows:
            raise UserError(f"the suite {self.name} has no sentence pair for {cell.name}: give other data")
        chosen = sample(rows, limit, seed)
        lines, sources, references = zip(*chosen, strict=True)
        return Part(cell, lines, sources, references, len(rows), self.blocks(cell, chosen) if self.blocks else ())

    def chosen(self, names: str | None) -> tuple[Cell, ...]:
        """The cells of `de-en,en-de`, or all; of a suite of domains also of `help.de-en`, and of `help` and `de-en` all
        of that domain or direction. Raises UserError for one that the suite does not have."""
        if names is None:
            return self.cells
        cells: dict[Cell, None] = {}
        for name in names.split(","):
            named = [cell for cell in self.cells if name and name in (cell.name, cell.direction, cell.domain)]
            if not named:
                known = ", ".join(cell.name for cell in self.cells)
                raise UserError(f"the suite {self.name} has no direction {name!r}: choose from {known}")
            cells |= dict.fromkeys(named)
        return tuple(cells)


def sample(rows: Sequence[Row], limit: int | None, seed: int = SEED) -> list[Row]:
    """At most `limit` of the rows in their order, the ones whose hashes are least.

    A smaller limit gives a part of what a larger one gives, both directions of a language pair get the same pairs, and
    whether a pair is taken depends on no other pair's text.
    """
    if limit is None or limit >= len(rows):
        return list(rows)
    order = sorted(range(len(rows)), key=lambda n: (_sort_key(rows[n], seed), n))
    return [rows[n] for n in sorted(order[:limit])]


def _sort_key(row: Row, seed: int) -> bytes:
    text = json.dumps([seed, *sorted(row[1:])], ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def open_suite(
    name: str,
    data: Path | None = None,
    source: str | None = None,
    target: str | None = None,
    columns: str | None = None,
) -> Suite:
    """A suite of `NAMED`, or the one of a TSV or TMX file for a given direction.

    `data` is the folder of all but sample, `columns` two columns of a TSV file (numbers from 1 or names, source first).
    Raises UserError for a suite that is not there.
    """
    if name in NAMED:
        if source or target or columns:
            raise UserError(
                f"--src, --tgt and --columns are for a file of your own: choose from {name} with --directions"
            )
        if name in SPLITS:
            return _domain_suite(name, data)
        cells = tuple(Cell(a, b) for a, b in DIRECTIONS)
        if name == SAMPLE:
            return Suite(SAMPLE, cells, _sample_rows, QUICK)
        return Suite(name, cells, partial(_wmt_rows, name, data))
    path = Path(name)
    if not path.exists():
        raise UserError(f"unknown suite {name!r}: choose one of {', '.join(NAMED)}, or give a TSV or TMX file")
    if not source or not target:
        raise UserError(f"{name} is a file of your own: name its languages with --src LANG --tgt LANG")
    cell = Cell(language(source).code, language(target).code)
    return Suite(path.name, (cell,), lambda cell: file_rows(path, cell.source, cell.target, columns))


def _domain_suite(name: str, data: Path | None) -> Suite:
    """The cells of all files of a suite of domains, domain by domain, from the other languages first."""
    split = SPLITS[name]
    folder = data or Path("data")
    pairs = [(domain, code) for domain in DOMAINS for code in languages_of(folder, domain, split)]
    if not data or not pairs:
        raise UserError(f"the suite {name} is read from files: give --data DIR with domains/help.de-en.{split}.tsv")
    cells = [Cell(*ends, domain) for domain, code in pairs for ends in ((code, "en"), ("en", code))]
    cells.sort(key=lambda cell: ([*DOMAINS].index(cell.domain), cell.source == "en"))

    def rows(cell: Cell) -> list[Row]:
        other = cell.source if cell.source != "en" else cell.target
        return _file_pairs(cell_file(folder, cell.domain, other, split), cell)

    def blocks(cell: Cell, chosen: Sequence[Row]) -> tuple[str, ...]:
        return blocks_of(folder, cell.domain, [ref if cell.target == "en" else text for _, text, ref in chosen])

    return Suite(name, tuple(cells), rows, blocks=blocks)


def sample_lines(code: str) -> list[str]:
    """The sentences of the sample corpus in a language: the n-th of all languages translate each other."""
    return (SAMPLE_CORPUS / f"{code}.txt").read_text(encoding="utf-8").splitlines()


def _sample_rows(cell: Cell) -> list[Row]:
    pairs = zip(sample_lines(cell.source), sample_lines(cell.target), strict=True)
    return [(n, a, b) for n, (a, b) in enumerate(pairs, 1) if a.strip() and b.strip()]


def _file_pairs(path: Path, cell: Cell) -> list[Row]:
    """The pairs of a file with English first."""
    corpus = read_corpus(path, Skips())
    rows = zip(corpus.lines, corpus.sources, corpus.targets, strict=True)
    return list(rows) if cell.target == "en" else [(n, b, a) for n, a, b in rows]


def _wmt_rows(suite: str, data: Path | None, cell: Cell) -> list[Row]:
    other = cell.source if cell.source != "en" else cell.target
    folder, split = FOLDERS[suite]
    if data:
        path = data / folder / f"{other}-en.tsv"
        if not path.is_file():
            raise UserError(f"there is no {path}: give --data DIR with {folder}/{other}-en.tsv, or other --directions")
        return _file_pairs(path, cell)
    name, skips = f"hf:wmt16/{other}-en@{split}", Skips()
    try:
        rows = _paired(name, [hub_segments(name, Side(code), skips) for code in cell[:2]], skips)
    except UserError as error:
        raise UserError(
            f"the suite {suite} could not be read as {name}: give --data DIR with {folder}/{other}-en.tsv "
            f"(English, tab, the other language), or connect to a network ({str(error).rpartition(': ')[0]})"
        ) from None
    if suite == "wmt16" and other in HUB_ROWS:
        rows = [row for row in rows if row[0] <= HUB_ROWS[other]]
    return rows


def file_rows(path: Path, source: str, target: str, columns: str | None = None) -> list[Row]:
    """The pairs of a TSV file (columns by header, else the first two) or a TMX file, with their lines.

    Raises UserError for other formats.
    """
    form = format_of(path).name
    skips = Skips()
    if form == "tmx":
        if columns:
            raise UserError(f"{path} is a TMX file, which has no columns: leave --columns out")
        return [(a.origin.line, a.text.strip(), b.text.strip()) for a, b in TMX.pairs(path, source, target, skips)]
    if form != "tsv":
        raise UserError(f"{path} is {form}, which holds no sentence pairs: give a TSV (.tsv) or TMX (.tmx) file")
    names = columns.split(",") if columns else _columns(path, source, target)
    if len(names) != 2:
        raise UserError(f"--columns {columns} are not two columns: give the source's and the target's, such as 1,2")
    sides = [Side(code, column) for code, column in zip((source, target), names, strict=True)]
    rows = _paired(str(path), [format_named("tsv").segments(path, side, skips) for side in sides], skips)
    number, first, second = rows[0] if rows else (0, "", "")
    headed = number == 1 and first.casefold() in USUAL_HEADS[0] and second.casefold() in USUAL_HEADS[1]
    return rows[1:] if headed else rows  # the header of columns that were given by number


def _paired(name: str, sides: Sequence[Iterable[Segment]], skips: Skips) -> list[Row]:
    """The rows with text on both sides, by their numbers; others are left out, logged and counted."""
    sources, targets = ({s.origin.line: s.text.strip() for s in side} for side in sides)
    for number in sorted(sources.keys() ^ targets.keys()):
        skips.add(Origin(name, number), "text on one side only")
    if left := skips.summary():
        log.warning("%s: %s", name, left)
    return [(n, sources[n], targets[n]) for n in sorted(sources.keys() & targets.keys())]


def _columns(path: Path, source: str, target: str) -> list[str]:
    """The columns whose headers name the languages or say source and target, else the first two."""
    first = next((line.text for line in read_lines(path, Skips(shown=0))), None) or ""
    heads = [cell.strip().casefold() for cell in first.split("\t")]
    columns = []
    for code, usual in zip((source, target), USUAL_HEADS, strict=True):
        names = (code.casefold(), base_code(code), language(code).name.casefold(), *usual)
        columns += [name for name in names if name in heads][:1]
    return columns if len(columns) == 2 else ["1", "2"]
