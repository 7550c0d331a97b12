"""Dev accuracy during training: small, without an index."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from eval.data.phrase_pairs import MAX_WORDS, Frequent, all_phrase_pairs
from eval.data.phrase_sets import HALVES, frequent_of, half_of
from finetune.ccpr.batches import candidates, places_of, span_codes, surface_hash
from finetune.training.encoder import TrainedEncoder
from rag_mt.base.errors import UserError
from retrievers.ccpr.model import PhraseHeads, tokenise
from retrievers.encoders.encoder import padded

BATCH = 64


def dev_rows(pairs: Path, name: str, count: int) -> list[dict[str, Any]]:
    """The first `count` sentence pairs of the dev half for choices whose alignments lie in `PAIRS/xx-en.dev.jsonl`,
    with their phrase pairs: rows as those of `PhrasePool`.

    Raises UserError where there are none.
    """
    path = pairs / f"{name}.dev.jsonl"
    if not path.is_file():
        raise UserError(
            f"there are no dev alignments {path}: `python -m finetune.ccpr.pairs --data DIR` writes them where DIR "
            f"has dev/{name}.tsv"
        )
    aligned = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    aligned = [row for row in aligned if half_of(row["target"]) == HALVES[0]][:count]
    sources, targets = ([row[side] for row in aligned] for side in ("source", "target"))
    links = [np.array(row["links"], dtype=np.int32).reshape(-1, 2) for row in aligned]
    frequent = frequent_of(pairs, name.removesuffix("-en")) or Frequent()
    spans = all_phrase_pairs(sources, targets, links, frequent, MAX_WORDS)
    return [
        {"pair": name, "source": source, "target": target, "spans": phrase_pairs.ravel().tolist()}
        for source, target, phrase_pairs in zip(sources, targets, spans, strict=True)
    ]


def dev_scores(
    rows: Sequence[Mapping[str, Any]], encoder: TrainedEncoder, heads: PhraseHeads, max_tokens: int
) -> dict[str, float]:
    """Accuracy@1 (strict: the surface of the best hit is that of the aligned phrase) of the rows' phrase pairs per
    language pair and on average, in per cent, among all target spans of all rows; and `segmentation_auc`, the share in
    per cent of (phrase, other span) pairs of a sentence whose phrase has the higher probability, both sides."""
    tokenizer, settings = encoder.tokenizer, heads.settings
    tokens = {
        side: tokenise(tokenizer, [row[side] for row in rows], settings.prefix, max_tokens)
        for side in ("source", "target")
    }
    # 1. What every token adds as a start and as an end of a span.
    projected: dict[tuple[str, int], tuple[torch.Tensor, torch.Tensor]] = {}
    for side, texts in tokens.items():
        order = sorted(range(len(rows)), key=lambda n: -len(texts[n].ids))
        for begin in range(0, len(order), BATCH):
            part = order[begin : begin + BATCH]
            ids, mask = padded([texts[n].ids for n in part], tokenizer.pad_token_id or 0)
            with torch.no_grad():
                starts, ends = heads.project(encoder.states(torch.from_numpy(ids), torch.from_numpy(mask)))
            projected.update({(side, n): (starts[k], ends[k]) for k, n in enumerate(part)})

    def spans_of(side: str, n: int, places: NDArray[np.int32]) -> torch.Tensor:
        starts, ends = projected[side, n]
        first, last = torch.from_numpy(places.astype(np.int64)).unbind(1)
        return starts[first] + ends[last]

    # 2. The vectors of all target spans and of the aligned source phrases; how well phrases are told from other spans.
    keys, surfaces, queries, wanted, pairs, ranks = [], list[int](), [], list[int](), list[str](), []
    with torch.no_grad():
        for n, row in enumerate(rows):
            phrases = np.array(row["spans"], dtype=np.int32).reshape(-1, 2, 2)  # (phrase pairs, sides, start and end)
            for number, side in enumerate(tokens):
                places, edges = candidates(tokens[side][n], settings.max_words)
                spans = spans_of(side, n, places)
                if side == "target":
                    keys.append(heads.vectors(spans))
                    surfaces += [surface_hash(row["target"][start:end]) for start, end in edges.tolist()]
                is_phrase = np.isin(span_codes(edges), span_codes(phrases[:, number]))
                logits = heads.logits(spans).cpu().numpy()
                if is_phrase.any() and not is_phrase.all():
                    ranks.append(float((logits[is_phrase][:, None] > logits[~is_phrase][None]).mean()))
            places = places_of(tokens["source"][n], phrases[:, 0])
            readable = (places >= 0).all(1)
            queries.append(heads.vectors(spans_of("source", n, places[readable])))
            wanted += [surface_hash(row["target"][start:end]) for start, end in phrases[readable, 1].tolist()]
            pairs += [row["pair"]] * int(readable.sum())
        # 3. The best hit of every phrase.
        vectors = torch.cat(keys)
        best = torch.cat([(part @ vectors.T).argmax(1) for part in torch.cat(queries).split(1024)]).cpu().numpy()
    right = np.array(surfaces)[best] == np.array(wanted)
    names = np.array(pairs)
    scores = {name: 100 * float(right[names == name].mean()) for name in sorted(set(pairs))}
    return {
        **{name: round(score, 2) for name, score in scores.items()},
        "average": round(float(np.mean(list(scores.values()))), 2),
        "segmentation_auc": round(100 * float(np.mean(ranks)), 2),
    }
