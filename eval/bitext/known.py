"""Which English the parallel text of a data folder knows to say what a sentence of another language says."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from rag_mt.base.languages import WMT16
from rag_mt.base.types import Skips
from rag_mt.formats.parallel import Corpus, letters_and_digits, read_corpus, training_file


class ParallelText:
    """The pairs of all files of `DATA/train`, by the language that stands beside English."""

    def __init__(self, data: Path) -> None:
        self.data = data
        there = [code for code in WMT16 if any((data / "train").glob(f"{code}-en.tsv*"))]
        self.corpora = {code: read_corpus(training_file(data, f"{code}-en"), Skips(shown=0)) for code in there}

    def of(self, language: str) -> Corpus:
        """The pairs of a language; raises UserError where there is no file of it."""
        if language not in self.corpora:
            training_file(self.data, f"{language}-en")
        return self.corpora[language]


class KnownEnglish:
    """The translations of sentences in `language` by all pairs of parallel text, whatever their domain.

    English sentences with a common translation in any language say the same, too.
    """

    def __init__(self, parallel: ParallelText, language: str) -> None:
        self._translations: dict[str, set[str]] = {}
        self._alike: defaultdict[str, set[str]] = defaultdict(set)
        for code, corpus in parallel.corpora.items():
            found: defaultdict[str, set[str]] = defaultdict(set)
            for other, english in zip(corpus.sources, corpus.targets, strict=True):
                found[letters_and_digits(other)].add(" ".join(english.split()))
            for group in found.values():
                if len(group) > 1:
                    for text in group:
                        self._alike[letters_and_digits(text)] |= group
            if code == language:
                self._translations = dict(found)

    def of(self, text: str) -> set[str]:
        """All English that is known to say what a sentence in the language says."""
        direct = self._translations.get(letters_and_digits(text), set())
        return direct.union(*(self._alike.get(letters_and_digits(english), ()) for english in direct))
