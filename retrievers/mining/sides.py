"""The two sides of a mining job: which lines of two texts are compared, and their vectors.

Each text is taken once, none that stands on both sides, and maybe none in the other language. The lines are read twice:
first to hash them (nine bytes a line), then to encode those that were chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simplemma import LanguageDetector
from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import Encoder, Floats, Kind, Sentence
from rag_mt.formats.parallel import letters_and_digits
from retrievers.index.build import build_index
from retrievers.index.manifest import MANIFEST
from retrievers.index.opening import open_index
from retrievers.index.search import Index
from retrievers.index.shards import Writer
from retrievers.registry import sentence_encoder
from retrievers.units.unit import SentenceUnits, UnitMaker

LINE = np.dtype([("hash", np.uint64), ("foreign", np.bool_)])
"""A hash of a line's letters and digits, and whether it is rather in the other language."""
KIND: Kind = "query"
"""What both sides are encoded as: neither of them asks and neither answers."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Which lines of a side are kept, bool (lines,), and how many were dropped for which reason."""

    kept: NDArray[np.bool_]
    dropped: Mapping[str, int]

    @property
    def count(self) -> int:
        """The number of lines that are kept."""
        return int(self.kept.sum())

    def of(self, sentences: Iterable[Sentence]) -> Iterator[Sentence]:
        """The kept ones of the sentences, which are read once more; raises UserError if they have become fewer."""
        stream = iter(sentences)
        for keep in self.kept.tolist():
            sentence = next(stream, None)
            if sentence is None:
                raise UserError("the text has become shorter while it was read: run the same command again")
            if keep:
                yield sentence

    def describe(self) -> str:
        """Such as `97 of 100 lines (1 on both sides, 2 near-duplicates of others)`."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items() if count)
        return f"{self.count} of {len(self.kept)} lines{f' ({reasons})' if reasons else ''}"


def check_word_lists(codes: Iterable[str]) -> None:
    """Raise UserError for a language whose lines cannot be told from others'."""
    for code in codes:
        if base_code(code) not in SUPPORTED_LANGUAGES:
            known = ", ".join(sorted(SUPPORTED_LANGUAGES))
            raise UserError(
                f"there is no word list of {language(code).name} to check lines by: leave --check-language out "
                f"(known: {known})"
            )


def survey(sentences: Iterable[Sentence], language: str, other: str = "") -> NDArray[Any]:
    """A LINE for each line of a side (lines,); with the language `other`, a line is foreign if more of its words are
    known in that one than in its `language`."""
    is_foreign = foreign(language, other) if other else lambda text: False
    return np.fromiter(((_hash(s.text), is_foreign(s.text)) for s in sentences), LINE)


def choose(source: NDArray[Any], target: NDArray[Any]) -> tuple[Choice, Choice]:
    """The lines of both sides to compare.

    Dropped are those in the other language, those that stand on both sides (untranslated ones: which side they belong
    to is not known), and of near-duplicates all but the first.
    """
    shared = np.intersect1d(*(side["hash"][~side["foreign"]] for side in (source, target)))
    return _chosen(source, shared), _chosen(target, shared)


def _chosen(lines: NDArray[Any], shared: NDArray[np.uint64]) -> Choice:
    on_both = ~lines["foreign"] & np.isin(lines["hash"], shared)
    candidates = np.flatnonzero(~lines["foreign"] & ~on_both)
    kept = np.zeros(len(lines), dtype=bool)
    kept[candidates[np.unique(lines["hash"][candidates], return_index=True)[1]]] = True
    dropped = {
        "in the other language": int(lines["foreign"].sum()),
        "on both sides": int(on_both.sum()),
        "near-duplicates of others": len(candidates) - int(kept.sum()),
    }
    return Choice(kept, dropped)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(letters_and_digits(text).encode(), digest_size=8).digest(), "little")


def foreign(language: str, other: str) -> Callable[[str], bool]:
    """Tells whether more of a text's words are known in the other language than in its own."""
    home, abroad = (LanguageDetector(base_code(code)).proportion_in_target_languages for code in (language, other))
    return lambda text: bool(abroad(text) > home(text))


class MinedUnits(SentenceUnits):
    """Whole texts as units, encoded as the same kind on either side (a UnitMaker)."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.settings = {**self.settings, "kind": KIND}

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Sentence vectors and spans, whatever `kind` is asked for."""
        return super().units(texts, KIND)


def open_mined(name: str, device: str = "auto", dtype: str = "auto") -> MinedUnits:
    """The unit maker with the encoder of that name."""
    return MinedUnits(sentence_encoder(name, device, dtype))


def encoded_side(
    folder: Path,
    sentences: Iterable[Sentence],
    maker: UnitMaker,
    language: str,
    *,
    total: int,
    show: bool,
    writer: Writer | None = None,
) -> Index:
    """The index of a side in `folder`, built in shards as far as an earlier run did not.

    Raises UserError for what `build_index` and `open_index` do.
    """
    if not (folder / MANIFEST).is_file():
        options: dict[str, Any] = {"total": total, "show": show, "writer": writer}
        build_index(folder, sentences, maker, retriever="sentence", language=language, **options)
    return open_index(folder, maker.settings)
