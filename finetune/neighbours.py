"""Near neighbours as hard negatives: for each sentence pair another one, whose phrase a model confuses with its own.

    python -m finetune.neighbours --config configs/ccpr-embedded.toml --pairs PAIRS --model MODEL --output FILE.npz

takes the first sentence pairs in the order of training, asks the model with a few source phrases of each for the
nearest target phrase that says something else, and notes the sentence pair it stands in. Training with
`--set data.neighbours=FILE.npz` puts both into one batch, where that phrase is a negative.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from finetune.ccpr_config import Config, read_config
from finetune.phrase_batches import PhrasePool, surface_hash
from rag_mt.console import OK, Parser, add_model_options, note, positive, run
from rag_mt.defaults import DEFAULT_PHRASE_MODEL
from rag_mt.errors import UserError
from rag_mt.fingerprints import file_sha256, settings_hash
from rag_mt.paths import whole_file
from rag_mt.progress import progress
from rag_mt.toml_settings import changes_of
from rag_mt.types import Floats
from retrievers.ccpr import load_ccpr
from retrievers.ccpr.units import CcprUnits

ROWS = 256
QUERIES = 4096
HITS = 16


class Neighbours:
    """The neighbour of each row of a pool, as a file of this module has it."""

    def __init__(self, path: Path, pool: PhrasePool) -> None:
        try:
            with np.load(path, allow_pickle=False) as file:
                self.row_of: NDArray[np.int64] = file["neighbours"]
                made_for = str(file["pool"])
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{path} holds no neighbours: make it with `python -m finetune.neighbours`") from error
        if made_for != pool_hash(pool):
            raise UserError(
                f"{path} was made for other phrase pairs: make it anew with `python -m finetune.neighbours`"
            )
        self.fingerprint = file_sha256(path)

    def kept(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of `order` that have a neighbour."""
        found: NDArray[np.int64] = order[self.row_of[order] >= 0]
        return found

    def of(self, rows: Sequence[int]) -> list[int]:
        """The neighbours of rows that have one."""
        found: list[int] = self.row_of[list(rows)].tolist()
        return found


def pool_hash(pool: PhrasePool) -> str:
    """What the row numbers of a pool depend on."""
    return settings_hash([pool.facts, len(pool.table), len(pool)])


def training_order(pool: PhrasePool, config: Config) -> NDArray[np.int64]:
    """The rows of a pool in the order in which a run with these settings takes them."""
    return pool.order(config.training.seed, config.data.domain_weights, config.data.language_power)


def neighbours(
    pool: PhrasePool, rows: NDArray[np.int64], units: CcprUnits, phrases: int, seed: int
) -> NDArray[np.int64]:
    """For each row of the pool the row with the nearest wrong target phrase, -1 for rows that were not looked at or
    have none (rows of the table,).

    Up to `phrases` source phrases of each of `rows` are asked among the target phrases of all of them. A hit is wrong
    if it lies in another row and its surface is that of no target phrase of the asking row.
    """
    rng = np.random.default_rng(seed)
    made: list[tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]] = []
    bar = progress(len(rows), "sentence pairs", "encoding phrases")
    for begin in range(0, len(rows), ROWS):
        numbers = rows[begin : begin + ROWS]
        found = pool.rows(numbers.tolist())
        spans, owners, surfaces = [], [], []
        for at, row in enumerate(found):
            own = np.array(row["spans"], dtype=np.int32).reshape(-1, 4)
            own = own[rng.permutation(len(own))[:phrases]]
            spans.append(np.insert(own, 0, at, axis=1))
            owners += [numbers[at]] * len(own)
            surfaces += [surface_hash(row["target"][c:d]) for c, d in own[:, 2:].tolist()]
        places = np.concatenate(spans)
        made.append(
            (
                units.span_vectors([row["source"] for row in found], places[:, [0, 1, 2]]),
                units.span_vectors([row["target"] for row in found], places[:, [0, 3, 4]]),
                np.array(owners, np.int64),
                np.array(surfaces, np.int64),
            )
        )
        bar.update(len(numbers))
    bar.close()
    source, target, owner, said = (np.concatenate(parts) for parts in zip(*made, strict=True))
    return nearest_wrong(source, target, owner, said, len(pool.table))


def nearest_wrong(
    source: Floats, target: Floats, owner: NDArray[np.int64], surface: NDArray[np.int64], rows: int
) -> NDArray[np.int64]:
    """See `neighbours`: phrase i of row `owner[i]` has the vectors `source[i]` and `target[i]` (phrases, dimension) and
    the hash `surface[i]` of its target side."""
    index = faiss.IndexFlatIP(target.shape[1])
    index.add(target)
    known = set(zip(owner.tolist(), surface.tolist(), strict=True))
    best = np.full(rows, -np.inf, np.float32)
    found = np.full(rows, -1, np.int64)
    bar = progress(len(source), "phrases", "searching neighbours")
    for begin in range(0, len(source), QUERIES):
        scores, hits = index.search(source[begin : begin + QUERIES], min(HITS, len(target)))
        for own, row_scores, row_hits in zip(owner[begin:].tolist(), scores, hits.tolist(), strict=False):
            for score, hit in zip(row_scores.tolist(), row_hits, strict=True):
                if owner[hit] != own and (own, int(surface[hit])) not in known:
                    if score > best[own]:
                        best[own], found[own] = score, owner[hit]
                    break
        bar.update(len(scores))
    bar.close()
    return found


def write_neighbours(options: argparse.Namespace) -> int:
    """Find the neighbours and write them."""
    config = read_config(Path(options.config), changes_of(options.set))
    pool = PhrasePool([Path(options.pairs) / name for name in config.data.languages])
    order = training_order(pool, config)[: options.rows]
    units = load_ccpr(options.model, options.device, options.dtype)
    found = neighbours(pool, order, units, options.phrases, config.training.seed)
    with whole_file(Path(options.output)) as path, path.open("wb") as file:
        np.savez(file, allow_pickle=False, neighbours=found, pool=np.array(pool_hash(pool)))
    note(f"{int((found >= 0).sum())} of {len(order)} sentence pairs have a neighbour")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m finetune.neighbours", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="settings of the training")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    parser.add_argument("--pairs", required=True, metavar="DIR", help="phrase pairs")
    parser.add_argument("--model", default=DEFAULT_PHRASE_MODEL, help=f"default: {DEFAULT_PHRASE_MODEL}")
    parser.add_argument("--rows", type=positive, default=50_000, metavar="N", help="sentence pairs (default: 50000)")
    parser.add_argument("--phrases", type=positive, default=3, metavar="N", help="phrases of each (default: 3)")
    parser.add_argument("--output", required=True, metavar="FILE.npz")
    add_model_options(parser)
    return run(write_neighbours, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
