"""Dev accuracy during training: small, without an index."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eval.data.phrase_pairs import MAX_WORDS, Frequent, all_phrase_pairs
from eval.data.phrase_sets import HALVES, half_of
from finetune.ccpr.batches import span_codes, surface_hash, word_ngrams
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json
from retrievers.ccpr.model import PhraseHeads, Tokenised, tokenise
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
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    own = [row for row in found if half_of(row["target"]) == HALVES[0]][:count]
    links = [np.array(row["links"], dtype=np.int32).reshape(-1, 2) for row in own]
    frequent = read_json(pairs / name / "frequent.json")
    words = Frequent(*(frozenset(frequent[code]) for code in name.split("-")))
    spans = all_phrase_pairs([r["source"] for r in own], [r["target"] for r in own], links, words, MAX_WORDS)
    return [
        {"pair": name, "source": row["source"], "target": row["target"], "spans": made.ravel().tolist()}
        for row, made in zip(own, spans, strict=True)
    ]


def dev_scores(
    rows: Sequence[Mapping[str, Any]],
    tokenizer: Any,
    encode: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    heads: PhraseHeads,
    max_tokens: int,
) -> dict[str, float]:
    """Accuracy@1 (strict: the surface of the best hit is that of the aligned phrase) of the rows' phrase pairs per
    language pair and on average, in per cent, among all target spans of all rows; and `segmentation_auc`, the share in
    per cent of (phrase, other span) pairs of a sentence whose phrase has the higher probability, both sides.

    `encode` gives states (batch, tokens, hidden) for ids and mask (batch, tokens).
    """
    settings = heads.settings
    sides: dict[str, list[tuple[Tokenised, torch.Tensor, torch.Tensor]]] = {}
    for side in ("source", "target"):
        read = tokenise(tokenizer, [r[side] for r in rows], settings.prefix, max_tokens)
        order = sorted(range(len(rows)), key=lambda i: -len(read[i].ids))
        made: dict[int, tuple[Tokenised, torch.Tensor, torch.Tensor]] = {}
        for begin in range(0, len(order), BATCH):
            part = order[begin : begin + BATCH]
            ids, mask = padded([read[i].ids for i in part], tokenizer.pad_token_id or 0)
            with torch.no_grad():
                starts, ends = heads.project(encode(torch.from_numpy(ids), torch.from_numpy(mask)))
            made.update({i: (read[i], starts[k], ends[k]) for k, i in enumerate(part)})
        sides[side] = [made[i] for i in range(len(rows))]

    candidates, surfaces, queries, wanted, pairs, ranks = [], list[int](), [], list[int](), list[str](), []
    with torch.no_grad():
        for number, row in enumerate(rows):
            spans = np.array(row["spans"], dtype=np.int32).reshape(-1, 4)
            for side in ("source", "target"):
                tokens, starts, ends = sides[side][number]
                firsts, lasts = word_ngrams(len(tokens.words), settings.max_words)
                edges = np.stack([tokens.words[firsts, 0], tokens.words[lasts, 1]], axis=1)
                bounds = tokens.bounds.astype(np.int64)
                mixed = starts[bounds[firsts, 0]] + ends[bounds[lasts, 1]]
                if side == "target":
                    candidates.append(heads.vectors(mixed))
                    surfaces += [surface_hash(row["target"][x:y]) for x, y in edges.tolist()]
                own = spans[:, 2:] if side == "target" else spans[:, :2]
                is_phrase = np.isin(span_codes(edges), span_codes(own))
                logits = heads.logits(mixed).cpu().numpy()
                if is_phrase.any() and not is_phrase.all():
                    ranks.append(float((logits[is_phrase][:, None] > logits[~is_phrase][None]).mean()))
            tokens, starts, ends = sides["source"][number]
            a = tokens.first_token(spans[:, 0]).astype(np.int64)
            b = tokens.last_token(spans[:, 1]).astype(np.int64)
            kept = np.flatnonzero((a >= 0) & (b >= 0))
            queries.append(heads.vectors(starts[a[kept]] + ends[b[kept]]))
            wanted += [surface_hash(row["target"][x:y]) for x, y in spans[kept, 2:].tolist()]
            pairs += [row["pair"]] * len(kept)
        keys = torch.cat(candidates)
        best = torch.cat([(part @ keys.T).argmax(1) for part in torch.cat(queries).split(1024)]).cpu().numpy()
    right = np.array(surfaces)[best] == np.array(wanted)
    names = np.array(pairs)
    scores = {name: 100 * float(right[names == name].mean()) for name in sorted(set(pairs))}
    return {
        **{k: round(v, 2) for k, v in scores.items()},
        "average": round(float(np.mean(list(scores.values()))), 2),
        "segmentation_auc": round(100 * float(np.mean(ranks)), 2),
    }
