"""Sentence pairs that a language model is tuned on, drawn from parallel text, and the JSONL file of them with hints.

The pairs are a seeded sample: every method (plain, sentence, phrase) has the same ones, so that adapters differ in the
hints only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eval.data.phrase_sets import HALVES, development_half
from finetune.held_out import held_out
from finetune.lora.config import DataConfig
from finetune.training.sampling import weighted_order
from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, read_json, whole_file
from rag_mt.base.types import NOWHERE, Hint, Hit, Neighbour, Origin, Sentence, Skips, Span, Unit
from rag_mt.formats.parallel import letters_and_digits, read_corpus, training_file
from rag_mt.text.words import word_spans

GROUPS = ("to-en", "from-en")
PARTS = ("train", "dev")
"""Of a folder of data; `sample` are the texts of the sample corpus."""


@dataclass(frozen=True)
class Pair:
    """A sentence in `source_language` and its translation, with the file and line that they come from."""

    source_language: str
    target_language: str
    source: str
    target: str
    domain: str = ""
    origin: Origin = NOWHERE

    @property
    def direction(self) -> str:
        """`de-en` for German to English."""
        return f"{self.source_language}-{self.target_language}"

    @property
    def turned(self) -> Pair:
        """The pair in the other direction."""
        languages = self.target_language, self.source_language
        return Pair(*languages, self.target, self.source, self.domain, self.origin)

    @property
    def sentence(self) -> Sentence:
        """The sentence to translate."""
        return Sentence(self.source, self.source_language, self.origin)


@dataclass(frozen=True)
class Example:
    """A sentence pair with hints; `unit` is what the hints' hits are, `context` the sentences around it that its prompt
    shows."""

    pair: Pair
    unit: Unit
    hints: tuple[Hint, ...] = ()
    context: tuple[Neighbour, ...] = ()


def sampled_pairs(data: Path, part: str, group: str, settings: DataConfig, skips: Skips) -> list[Pair]:
    """The pairs of a part and group, language by language: `settings.pairs` of each, fewer where the data has fewer.

    Training pairs are those that are held out from the phrase retrievers (`finetune.held_out`), or the others if the
    settings say so, development pairs those of half A. A pair that is too short, too long, lopsided, no translation or
    seen before goes to `skips`. More pairs of the same seed begin with the same ones. Raises UserError for missing
    files and for a language without any usable pair.
    """
    pairs: list[Pair] = []
    for code in settings.languages:
        usable = list(_usable_pairs(data, part, code, settings, skips))
        weights = np.array([settings.domain_weights.get(pair.domain, 1.0) for pair in usable])
        for n in np.flatnonzero(weights == 0).tolist():
            skips.add(usable[n].origin, f"of a domain without weight ({usable[n].domain})")
        if not weights.any():
            reasons = f" ({skips.summary()})" if skips.summary() else ""
            raise UserError(
                f"{data}/{part}/{code}-en.tsv has no usable pair{reasons}: give more data, or other data.languages"
            )
        order = weighted_order(weights, [settings.seed, *f"{part} {code}".encode()])
        pairs += [usable[n] for n in order[: settings.pairs]]
    return pairs if group == "to-en" else [pair.turned for pair in pairs]


def _usable_pairs(data: Path, part: str, code: str, settings: DataConfig, skips: Skips) -> Iterator[Pair]:
    seen: set[str] = set()
    for pair in _pairs(data, part, code, settings.held_out, skips):
        keys = letters_and_digits(pair.source), letters_and_digits(pair.target)
        if reason := unusable(pair.source, pair.target, keys, settings):
            skips.add(pair.origin, reason)
        elif seen & set(keys):
            skips.add(pair.origin, "with a side that was seen before")
        else:
            seen.update(keys)
            yield pair


def _pairs(data: Path, part: str, code: str, kept_out: bool, skips: Skips) -> Iterator[Pair]:
    """The pairs of training data or of the sample corpus that are held out, or not, or those of development data."""
    if part == "dev":
        for line, other, english in development_half(data, code, HALVES[0], skips)[1]:
            yield Pair(code, "en", other, english, "", Origin(f"dev/{code}-en.tsv", line))
    elif part == "sample":
        texts = [(data / f"{name}.txt").read_text(encoding="utf-8").splitlines() for name in (code, "en")]
        for line, (other, english) in enumerate(zip(*texts, strict=True), 1):
            if held_out(english) == kept_out:
                yield Pair(code, "en", other, english, part, Origin(f"{code}.txt", line))
    else:
        file = training_file(data, f"{code}-en")
        corpus = read_corpus(file, skips)
        columns = zip(corpus.lines, corpus.domains, corpus.sources, corpus.targets, strict=True)
        for line, domain, other, english in columns:
            if held_out(english) == kept_out:
                yield Pair(code, "en", other, english, domain, Origin(f"train/{file.name}", line))


def unusable(other: str, english: str, keys: Sequence[str], settings: DataConfig) -> str:
    """Why a pair with the `letters_and_digits` sides `keys` makes no example, or an empty string."""
    words = [len(word_spans(text)) for text in (other, english)]
    lengths = sorted(map(len, keys))
    if min(words) < settings.fewest_words:
        return f"with fewer than {settings.fewest_words} words"
    if max(words) > settings.most_words:
        return f"with more than {settings.most_words} words"
    if not lengths[0] or lengths[1] > settings.longest_ratio * lengths[0]:
        return f"with a side more than {settings.longest_ratio} times as long as the other"
    if keys[0] == keys[1]:
        return "with equal sides"
    return ""


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Write the file, whole or not at all."""
    with whole_file(path) as part, part.open("w", encoding="utf-8") as out:
        for example in examples:
            out.write(json.dumps(_as_record(example), ensure_ascii=False) + "\n")


def read_examples(paths: Sequence[Path]) -> list[Example]:
    """The examples of some files, in order; raises UserError for a file that is missing or none of examples."""
    examples = []
    for path in paths:
        if not path.is_file():
            raise UserError(f"there are no examples {path}: make them with `python -m finetune.lora.data`")
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    examples.append(_from_record(json.loads(line)))
                except (ValueError, KeyError, TypeError) as error:
                    raise UserError(
                        f"{path} has no example in line {number}: make it again with `python -m finetune.lora.data`"
                    ) from error
    return examples


def manifest_path(path: Path) -> Path:
    """Where the manifest of a file of examples lies."""
    return path.with_name(f"{path.name}.manifest.json")


def facts_of(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """For each file of examples its name, its hash and what its manifest says, if it has one."""
    manifests = [read_json(path) if path.is_file() else {} for path in map(manifest_path, paths)]
    return [
        {"file": path.name, "sha256": file_sha256(path), **manifest}
        for path, manifest in zip(paths, manifests, strict=True)
    ]


def _as_record(example: Example) -> dict[str, Any]:
    pair = asdict(example.pair)
    origin = pair.pop("origin")
    return {
        **pair,
        "file": origin["file"],
        "line": origin["line"],
        "unit": example.unit,
        "hints": [
            {
                "source_span": [hint.source_span.start, hint.source_span.end],
                "phrase": hint.phrase,
                "span": [hint.hit.span.start, hint.hit.span.end],
                "sentence": hint.hit.sentence.text,
                **({"original": hint.hit.original} if hint.hit.original else {}),
                "score": hint.hit.stored_score,
                "file": hint.hit.sentence.source.file,
                "line": hint.hit.sentence.source.line,
            }
            for hint in example.hints
        ],
        **({"context": [astuple(one) for one in example.context]} if example.context else {}),
    }


def _from_record(record: Mapping[str, Any]) -> Example:
    languages = record["source_language"], record["target_language"]
    origin = Origin(record["file"], record["line"])
    pair = Pair(*languages, record["source"], record["target"], record["domain"], origin)
    hints = []
    for hint in record["hints"]:
        sentence = Sentence(hint["sentence"], pair.target_language, Origin(hint["file"], hint["line"]))
        hit = Hit(sentence, Span(*hint["span"]), hint["score"], hint.get("original", ""))
        hints.append(Hint(Span(*hint["source_span"]), hit))
    context = tuple(Neighbour(*one) for one in record.get("context", ()))
    return Example(pair, record["unit"], tuple(hints), context)
