"""How well passages are found while mDPR is trained: MRR@100 on development questions of several languages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from finetune.mdpr.relevance import json_rows, passage_of, read_examples
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats, Kind, Skips

FURTHER = ".passages.jsonl"


@dataclass(frozen=True)
class DevSet:
    """The questions of a language, the ids of their passages, and the passages of that language."""

    language: str
    queries: Sequence[str]
    relevant: Sequence[frozenset[str]]
    passages: Mapping[str, str]


def read_dev(folder: Path, most: int = 0) -> list[DevSet]:
    """The sets of `folder` (`LL.jsonl` with further passages in `LL.passages.jsonl`), each with `most` questions (0:
    all), spread evenly."""
    sets = []
    for path in sorted(p for p in folder.glob("*.jsonl") if not p.name.endswith(FURTHER)):
        language = path.name.removesuffix(".jsonl")
        examples = list(read_examples("jsonl", str(path), language, Skips()))
        further = path.with_name(language + FURTHER)
        passages = [p for e in examples for p in (*e.positives, *e.negatives)]
        passages += map(passage_of, json_rows(str(further))) if further.is_file() else ()
        if most and len(examples) > most:
            examples = [examples[n] for n in np.linspace(0, len(examples), most, endpoint=False).astype(int)]
        relevant = [frozenset(p.id for p in e.positives) for e in examples]
        sets.append(DevSet(language, [e.query for e in examples], relevant, {p.id: p.shown for p in passages}))
    return sets


def dev_scores(sets: Sequence[DevSet], encode: Callable[[Sequence[str], Kind], Floats]) -> dict[str, float]:
    """MRR@100 in percent: of each language, questions and passages in it (`de`), their mean (`same`), the mean over
    questions in one language and passages in another (`cross`), the mean precision with which all versions of a
    relevant passage come first when the passages of all languages are searched together (`mixed`), and the mean of
    these three (`average`); with one language, its score alone.

    Passages of different languages with the same id are versions of each other.
    """
    if not sets:
        return {}
    queries = {s.language: encode(s.queries, "query") for s in sets}
    passages = {s.language: encode(list(s.passages.values()), "passage") for s in sets}

    def score(measure: str, asked: DevSet, searched: Sequence[DevSet]) -> float:
        vectors = np.concatenate([passages[s.language] for s in searched])
        ids = [key for s in searched for key in s.passages]
        return _mean(measure, queries[asked.language] @ vectors.T, asked.relevant, ids)

    scores = {s.language: score("RR@100", s, [s]) for s in sets}
    if len(sets) == 1:
        scores["average"] = scores[sets[0].language]
    else:
        kinds = {
            "same": mean(scores.values()),
            "cross": mean(score("RR@100", a, [b]) for a in sets for b in sets if a is not b),
            "mixed": mean(score("AP", s, sets) for s in sets),
        }
        scores |= {**kinds, "average": mean(kinds.values())}
    return {name: round(100 * value, 2) for name, value in scores.items()}


def _mean(measure: str, scores: Floats, relevant: Sequence[frozenset[str]], ids: Sequence[str]) -> float:
    """The mean over questions of a measure of ir-measures, 0 for a question without a relevant passage, from scores
    (questions, passages); passages of the same id are versions of one."""
    try:
        import ir_measures
    except ImportError:
        raise UserError(
            "development scores need the package ir-measures: `pip install -c constraints.txt ir-measures`"
        ) from None
    columns = [str(n) for n in range(len(ids))]
    run = {str(n): dict(zip(columns, row, strict=True)) for n, row in enumerate(scores.tolist())}
    qrels = {
        str(n): {column: 1 for column, key in zip(columns, ids, strict=True) if key in keys}
        for n, keys in enumerate(relevant)
    }
    values = [metric.value for metric in ir_measures.iter_calc([ir_measures.parse_measure(measure)], qrels, run)]
    return float(sum(values) / len(relevant))
