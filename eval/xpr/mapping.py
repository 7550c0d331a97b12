"""Orthogonal maps from one space of vectors into another, with and without known pairs.

With pairs the best map is found at once (the orthogonal Procrustes problem). Without any, it is learnt by itself after
Artetxe, Labaka and Agirre (2018), "A robust self-learning method for fully unsupervised cross-lingual mappings of word
embeddings" (VecMap): vectors of the same thing have similar similarities to their own neighbours, which gives a first,
poor dictionary (section 3.2); then a map is fitted to the dictionary and a better dictionary is read off the mapped
vectors, in turns (section 3.3). VecMap's last steps, whitening and re-weighting, are left out: the map stays
orthogonal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rag_mt.base.types import Floats

BLOCK = 1000
"""Rows of similarities that are worked on at once: bounds the memory."""
TINY = 1e-12


def unit(vectors: Floats) -> Floats:
    """The rows at length 1; rows of zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows: Floats = (vectors / np.maximum(lengths, TINY)).astype(np.float32)
    return rows


def centre(vectors: Floats) -> Floats:
    """The mean (dimension,) of the rows at length 1, for `normalised`."""
    mean: Floats = unit(vectors).mean(0)
    return mean


def normalised(vectors: Floats, mean: Floats) -> Floats:
    """The rows at length 1, less `mean`, at length 1 again (VecMap, section 3.1). Rows of zeros stay."""
    nonzero = np.linalg.norm(vectors, axis=1, keepdims=True) > TINY
    return unit((unit(vectors) - mean) * nonzero)


def procrustes(products: NDArray[np.float64]) -> Floats:
    """The orthogonal map W (dimension, dimension) for which `source @ W` comes nearest to `target`, both
    (pairs, dimension): U V' of the singular value decomposition U S V' of source' target, the sum of the outer products
    of pairs, which may be added up over sets of pairs."""
    left, _, right = np.linalg.svd(products)
    rotation: Floats = (left @ right).astype(np.float32)
    return rotation


@dataclass(frozen=True)
class SelfLearning:
    """How a map is learnt without pairs; the defaults are VecMap's.

    The first `vocabulary` rows of both sides take part (the most frequent words), the first `first` of them in the
    first dictionary. A similarity counts in a round with the probability `keep`, which grows by the factor `growth`
    when the mean similarity of the dictionary has not grown by `threshold` for `patience` rounds; learning ends when
    that happens with all similarities counted, or after `most` rounds.
    """

    vocabulary: int = 20_000
    first: int = 4_000
    neighbours: int = 10
    keep: float = 0.1
    growth: float = 2.0
    patience: int = 50
    threshold: float = 1e-6
    most: int = 2_000
    seed: int = 1


def first_dictionary(source: Floats, target: Floats, settings: SelfLearning) -> NDArray[np.int64]:
    """Pairs of rows (n, 2) that have similar similarities to the rows of their own side; `source` and `target` are
    `normalised`.

    The square root of a side's similarity matrix, each row sorted, says the same in any rotation; rows of both sides
    are compared by it, in either direction, less half the mean of the best comparisons of the row and then, of what is
    left, of the column, so that no row is everyone's nearest.
    """
    count = min(len(source), len(target), settings.first)
    left, right = (_profiles(torch.from_numpy(side[:count])) for side in (source, target))
    scores = left @ right.T
    near = min(settings.neighbours, count)
    scores -= scores.topk(near, dim=1).values.mean(1, keepdim=True) / 2
    scores -= scores.topk(near, dim=0).values.mean(0, keepdim=True) / 2
    rows = torch.arange(count)
    forward = torch.stack([rows, scores.argmax(1)], dim=1)
    backward = torch.stack([scores.argmax(0), rows], dim=1)
    pairs: NDArray[np.int64] = torch.cat([forward, backward]).numpy()
    return pairs


def _profiles(vectors: torch.Tensor) -> torch.Tensor:
    """The rows of the square root of the similarity matrix, sorted and normalised, (rows, rows)."""
    left, values, _ = torch.linalg.svd(vectors, full_matrices=False)
    profiles = ((left * values) @ left.T).sort(dim=1).values
    profiles = torch.nn.functional.normalize(profiles)
    return torch.nn.functional.normalize(profiles - profiles.mean(0))


def self_learned(source: Floats, target: Floats, settings: SelfLearning) -> tuple[Floats, float, int]:
    """The map from `source` (rows, dimension) to `target` (rows, dimension), both `normalised` and without rows of
    zeros, that is learnt from the vectors alone; the mean similarity of its dictionary; and the rounds that it took.
    Equal seeds give equal maps on one machine."""
    x, z = (torch.from_numpy(np.ascontiguousarray(side[: settings.vocabulary])) for side in (source, target))
    generator = torch.Generator().manual_seed(settings.seed)
    pairs = torch.from_numpy(first_dictionary(source, target, settings))
    keep, best, improved = settings.keep, -math.inf, 0
    for number in range(1, settings.most + 1):
        left, _, right = torch.linalg.svd(x[pairs[:, 0]].T @ z[pairs[:, 1]])
        rotation = left @ right
        pairs, similarity = _dictionary((x @ rotation) @ z.T, settings.neighbours, keep, generator)
        if similarity >= best + settings.threshold:
            best, improved = similarity, number
        if number - improved > settings.patience:
            if keep >= 1:
                break
            keep, improved = min(1.0, settings.growth * keep), number
    return rotation.numpy(), similarity, number


def _dictionary(
    similarities: torch.Tensor, neighbours: int, keep: float, generator: torch.Generator
) -> tuple[torch.Tensor, float]:
    """The pairs (n, 2) that lie nearest in either direction, and the mean of the greatest similarities.

    Nearness is CSLS: from a similarity (sources, targets) half of the mean similarity that each of the two has to its
    nearest rows is taken off, so that a row that is near to everything is the nearest of little. The half of the row
    that asks changes no order and is left out. Each similarity counts with the probability `keep`.
    """
    pairs, best = [], []
    for side, scores in enumerate((similarities, similarities.T)):
        near = min(neighbours, len(scores))
        hubs = torch.cat([part.topk(near, dim=1).values.mean(1) for part in scores.T.split(BLOCK)]) / 2
        nearest = []
        for part in scores.split(BLOCK):
            best.append(part.max(1).values.mean() * len(part) / len(scores) / 2)
            part = part - hubs
            if keep < 1:
                part[torch.rand(part.shape, generator=generator) >= keep] = -math.inf
            nearest.append(part.argmax(1))
        columns, rows = torch.cat(nearest), torch.arange(len(scores))
        pairs.append(torch.stack([columns, rows] if side else [rows, columns], dim=1))
    return torch.cat(pairs), float(torch.stack(best).sum())
