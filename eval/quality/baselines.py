"""Scores of unrelated sentences, which BERTScore can be rescaled by, for every layer of an encoder at once.

    python -m eval.quality.baselines --data DIR --output eval/metrics/baselines/e5-small

writes LANG.tsv for each language of DIR/train (lines `layer,P,R,F`, as the package bert-score has them): the means
over pairs of sentences that have nothing to do with each other, which is what a score of 0 stands for (Zhang et al.
2020, section 3, baseline rescaling).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from eval.metrics.bertscore import BATCH, open_scorer
from rag_mt.base.console import OK, Parser, positive, progress, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import write_whole
from rag_mt.base.types import Skips
from rag_mt.formats.opening import read_lines

PARTNERS = 10
"""Other sentences that each one is compared with."""
NEWS_LIKE = ("news", "news+captions", "mixed", "wiki/reddit")
"""The domains whose sentences make baselines: what translations are scored on."""


def baselines(options: argparse.Namespace) -> int:
    """Write the baselines; returns the exit code."""
    data, output = Path(options.data), Path(options.output)
    files = sorted((data / "train").glob("*-en.tsv*"))
    if not files:
        raise UserError(f"{data / 'train'} has no XX-en.tsv files: expected English in the first column")
    texts = {path.name.partition("-")[0]: list(_texts(path, 1)) for path in files}
    texts["en"] = list(_texts(files[0], 0))
    with closing(progress(len(texts), "languages", "baselines", show=not options.quiet)) as bar:
        for language, sentences in sorted(texts.items()):
            count = min(options.sentences, len(sentences))
            rows = baseline(options.model, random.Random(options.seed).sample(sentences, count))
            lines = ["LAYER,P,R,F", *(",".join([str(n), *(f"{v:.6f}" for v in row)]) for n, row in enumerate(rows))]
            write_whole(output / f"{language}.tsv", "\n".join(lines) + "\n")
            bar.update(1)
    return OK


def baseline(model: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Mean precision, recall and F1 of unrelated sentences in every layer of an encoder, (layers + 1, 3)."""
    scorer, _ = open_scorer(model, layer=0, all_layers=True)
    partners = range(1, min(PARTNERS, len(texts) - 1) + 1)
    pairs = [(text, texts[(n + k) % len(texts)]) for n, text in enumerate(texts) for k in partners]
    scores = scorer.score([text for text, _ in pairs], [other for _, other in pairs], batch_size=BATCH)
    means: NDArray[np.float64] = torch.stack(scores, dim=-1).double().mean(dim=1).numpy()
    return means


def _texts(path: Path, column: int) -> Iterator[str]:
    """The different sentences of news-like domains in a column, in the file's order."""
    seen: set[str] = set()
    for line in read_lines(path, Skips(shown=0)):
        columns = (line.text or "").split("\t")
        if len(columns) > 2 and columns[2] in NEWS_LIKE and columns[column].strip() and columns[column] not in seen:
            seen.add(columns[column])
            yield columns[column]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.quality.baselines",
        description=__doc__,
        examples=["--data examples/data --output baselines --sentences 20"],
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv")
    parser.add_argument("--output", required=True, metavar="BASELINES", help="folder of the files LANG.tsv")
    parser.add_argument("--model", default=DEFAULT_ENCODER, metavar="ID", help="encoder")
    parser.add_argument("--sentences", type=positive, default=100, metavar="N", help="per language")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of their choice")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return run(baselines, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
