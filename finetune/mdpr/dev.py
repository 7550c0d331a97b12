"""How well passages are found while mDPR is trained: MRR@100 on development questions of several languages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from finetune.mdpr.relevance import Passage, read_examples
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats, Kind, Skips

MRR = "RR@100"

Encode = Callable[[Sequence[str], Kind], Floats]


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
    made = []
    for path in sorted(p for p in folder.glob("*.jsonl") if not p.name.endswith(".passages.jsonl")):
        language = path.name.removesuffix(".jsonl")
        examples = list(read_examples("jsonl", str(path), language, Skips()))
        passages = {p.id: p.shown for e in examples for p in (*e.positives, *e.negatives)}
        further = path.with_name(f"{language}.passages.jsonl")
        if further.is_file():
            for line in further.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                passages[row["docid"]] = Passage(row["docid"], row["text"], row.get("title", "")).shown
        if most and len(examples) > most:
            examples = [examples[n] for n in np.linspace(0, len(examples), most, endpoint=False).astype(int)]
        relevant = [frozenset(p.id for p in e.positives) for e in examples]
        made.append(DevSet(language, [e.query for e in examples], relevant, passages))
    return made


def dev_scores(sets: Sequence[DevSet], encode: Encode) -> dict[str, float]:
    """MRR@100 in percent: of each language, questions and passages in it (`de`), their mean (`same`), the mean over
    questions in one language and passages in another (`cross`), the mean precision with which all versions of a
    relevant passage come first when the passages of all languages are searched together (`mixed`), and the mean of
    these three (`average`); with one language, its score alone.

    Passages of different languages with the same id are versions of each other.
    """
    queries = {s.language: encode(s.queries, "query") for s in sets}
    passages = {s.language: encode(list(s.passages.values()), "passage") for s in sets}
    scores: dict[tuple[str, str], float] = {}
    for asked in sets:
        for searched in sets:
            hits = _hits(asked, searched)
            scores[asked.language, searched.language] = _mean(
                MRR, queries[asked.language] @ passages[searched.language].T, hits
            )
    found = {code: scores[code, code] for code in queries}
    if len(sets) < 2:
        return _percent({**found, "average": mean(found.values())} if found else {})
    found["same"] = mean(found.values())
    found["cross"] = mean(score for (asked, searched), score in scores.items() if asked != searched)
    together = np.concatenate(list(passages.values()))
    mixed = [
        _mean("AP", queries[s.language] @ together.T, np.concatenate([_hits(s, other) for other in sets], axis=1))
        for s in sets
    ]
    found["mixed"] = mean(mixed)
    found["average"] = mean(found[name] for name in ("same", "cross", "mixed"))
    return _percent(found)


def _percent(found: Mapping[str, float]) -> dict[str, float]:
    return {name: round(100 * value, 2) for name, value in found.items()}


def _hits(asked: DevSet, searched: DevSet) -> NDArray[np.bool_]:
    """Which passages (questions, passages) are relevant to which questions."""
    ids = list(searched.passages)
    return np.array([[key in relevant for key in ids] for relevant in asked.relevant], dtype=bool).reshape(-1, len(ids))


def _mean(measure: str, scores: Floats, hits: NDArray[np.bool_]) -> float:
    """The mean over questions of a measure of ir-measures, 0 for a question without a relevant passage."""
    try:
        import ir_measures
    except ImportError:
        raise UserError(
            "development scores need the package ir-measures: `pip install -c constraints.txt ir-measures`"
        ) from None
    columns = [str(n) for n in range(hits.shape[1])]
    run = {str(n): dict(zip(columns, row, strict=True)) for n, row in enumerate(scores.tolist())}
    qrels = {str(n): {columns[place]: 1 for place in np.flatnonzero(row)} for n, row in enumerate(hits)}
    values = [found.value for found in ir_measures.iter_calc([ir_measures.parse_measure(measure)], qrels, run)]
    return float(sum(values) / len(hits))
