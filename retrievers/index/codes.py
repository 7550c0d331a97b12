"""Stored vectors in fewer bits than the 16 that fp16 takes for each number: scalar quantization (8 bits), and product
quantization of two (4 bits) or four (2 bits) numbers by one byte.

In lists (IVF) it is the difference of a vector from the centroid of its list that is quantized, which is smaller than
the vector. FAISS cannot leave units out of an exhaustive search of products, so that those are always in lists.
`python -m eval.speed.codes` compares them.
"""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from rag_mt.base.defaults import BITS, FP16
from rag_mt.base.types import Floats

lib: Any = faiss
"""FAISS without its type hints, which lack half of what it has."""

FEWEST = 256
"""Units that a codec can be made from: a byte of product quantization stands for one of so many vectors."""
SAMPLE = 1 << 14
"""Units that it is made from, if there are so many."""
TOGETHER = {4: 2, 2: 4}
"""Numbers that one byte stands for in product quantization."""


def factory(bits: int, dimension: int) -> str:
    """What FAISS calls the form."""
    if bits in TOGETHER:
        return f"PQ{dimension // TOGETHER[bits]}x8np"  # np: no order of the codes for a search that is not ours
    return "SQfp16" if bits == FP16 else "SQ8"


def possible(bits: int, dimension: int) -> bool:
    """Whether vectors of that dimension can be stored with so many bits for each number."""
    return bits in BITS and dimension % TOGETHER.get(bits, 1) == 0


def exact_form(bits: int, dimension: int) -> Any:
    """An empty index that is searched exhaustively, of 16 or 8 bits."""
    return lib.index_factory(dimension, factory(bits, dimension), lib.METRIC_INNER_PRODUCT)


def in_lists(centroids: Floats, bits: int) -> Any:
    """An empty IVF index with these centroids (lists, dimension)."""
    lists, dimension = centroids.shape
    name = f"IVF{lists}(SQfp16),{factory(bits, dimension)}"
    index = lib.index_factory(dimension, name, lib.METRIC_INNER_PRODUCT)
    index.by_residual = bits != FP16
    index.quantizer.add(np.ascontiguousarray(centroids))
    return index


def take_codec(index: Any, bits: int, base: Any) -> None:
    """Give an empty index the codec of the index `base` of the same form: what that has is stored as it is there."""
    if bits in TOGETHER:
        index.pq = base.pq
    else:
        index.sq = base.sq
    index.is_trained = True


def encode(index: Any, bits: int, rows: NDArray[np.float16], lists: NDArray[np.int64] | None) -> NDArray[np.uint8]:
    """The codes (n, bytes) of vectors (n, dimension) in these lists of the index (n,); None if it has no lists."""
    if bits == FP16:
        return rows.view(np.uint8)
    vectors = np.ascontiguousarray(rows, dtype=np.float32)
    if lists is None:
        return np.asarray(index.sa_encode(vectors))
    codes, lists = np.empty((len(vectors), index.code_size), np.uint8), np.ascontiguousarray(lists)
    index.encode_vectors(len(vectors), lib.swig_ptr(vectors), lib.swig_ptr(lists), lib.swig_ptr(codes))
    return codes


def problem(index: Any, bits: int, has_lists: bool, dimension: int) -> str:
    """What is wrong with the form of an index that FAISS could read, or an empty string."""
    if bits in TOGETHER:
        right = type(index) is lib.IndexIVFPQ and (index.pq.M, index.pq.nbits) == (dimension // TOGETHER[bits], 8)
    else:
        kind = lib.IndexIVFScalarQuantizer if has_lists else lib.IndexScalarQuantizer
        wanted = lib.ScalarQuantizer.QT_fp16 if bits == FP16 else lib.ScalarQuantizer.QT_8bit
        right = type(index) is kind and index.sq.qtype == wanted
    if right and (not has_lists or bool(index.by_residual) == (bits != FP16)):
        return ""
    return "does not hold vectors of fp16" if bits == FP16 else f"does not hold vectors of {bits} bits a number"
