"""Mined pairs as files: TSV with score, texts and where they came from, or a TMX translation memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_file
from rag_mt.base.types import Sentence
from rag_mt.formats.lines import one_cell
from rag_mt.formats.opening import compressed
from rag_mt.formats.registry import format_by_suffix
from rag_mt.formats.tmx import Unit, Variant, write_memory

MinedPair = tuple[float, Sentence, Sentence]
"""A score, a sentence and its probable translation."""
Writer = Callable[[BinaryIO, Iterable[MinedPair], str, str], None]


def writer_for(path: Path) -> Writer:
    """What writes the format that the name asks for; raises UserError for another one than TSV and TMX."""
    form = format_by_suffix(path)
    if form not in WRITERS:
        raise UserError(f"output {path} is neither .tsv nor .tmx: give one of them (.gz, .xz or .zst may follow)")
    return WRITERS[form]


def write_pairs(path: Path, pairs: Iterable[MinedPair], source: str, target: str) -> None:
    """Write the pairs, compressed as the name says; the file appears when it is complete."""
    write = writer_for(path)
    with whole_file(path) as part, part.open("wb") as file, compressed(file, path) as out:
        write(out, pairs, source, target)


def _write_tsv(out: BinaryIO, pairs: Iterable[MinedPair], source: str, target: str) -> None:
    """A header and a row per pair. Tabs and line ends in texts and names become spaces."""
    head = ["score", source, target, *(f"{code}_{part}" for code in (source, target) for part in ("file", "line"))]
    out.write(("\t".join(head) + "\n").encode())
    for score, *sides in pairs:
        places = (str(part) for side in sides for part in (side.source.file, side.source.line))
        cells = (f"{score:.4f}", *(side.text for side in sides), *places)
        out.write(("\t".join(one_cell(cell) for cell in cells) + "\n").encode())


def _write_tmx(out: BinaryIO, pairs: Iterable[MinedPair], source: str, target: str) -> None:
    """TMX 1.4 with the score as a property of the unit, file and line as properties of its variants."""

    def variant(code: str, side: Sentence) -> Variant:
        return Variant(code, side.text, {"file": side.source.file, "line": str(side.source.line)})

    units = (Unit((variant(source, a), variant(target, b)), {"score": f"{score:.4f}"}) for score, a, b in pairs)
    write_memory(out, units, source)


WRITERS: dict[str, Writer] = {"tsv": _write_tsv, "tmx": _write_tmx}
