"""The baselines that BERTScore is rescaled by, for every layer of an encoder at once.

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

from rag_mt.base.console import OK, Parser, positive, progress, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Skips
from rag_mt.formats.opening import read_lines
from rag_mt.models.loading import LoadedEncoder, load_encoder

BATCH = 32
PARTNERS = 10
"""Other sentences that each one is compared with."""
NEWS_LIKE = ("news", "news+captions", "mixed", "wiki/reddit")
"""The domains whose sentences make baselines: what translations are scored on."""


def layer_states(encoder: LoadedEncoder, texts: Sequence[str]) -> list[torch.Tensor]:
    """L2-normalised token states of each text in all layers, (layers + 1, tokens, hidden), special tokens included."""
    made: dict[str, torch.Tensor] = {}
    order = sorted(set(texts), key=len)
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        limit = encoder.tokenizer.model_max_length
        read = encoder.tokenizer(
            [text.strip() for text in batch], padding=True, truncation=True, max_length=limit, return_tensors="pt"
        ).to(encoder.device)
        with (
            torch.no_grad(),
            torch.autocast(encoder.device.type, encoder.dtype, enabled=encoder.dtype != torch.float32),
        ):
            states = torch.stack(encoder.model(**read, output_hidden_states=True).hidden_states, dim=1)
        states = torch.nn.functional.normalize(states.float(), dim=-1)
        lengths = read["attention_mask"].sum(1).tolist()
        made.update((text, own[:, :length]) for text, own, length in zip(batch, states, lengths, strict=True))
    return [made[text] for text in texts]


def layer_scores(hypothesis: torch.Tensor, reference: torch.Tensor) -> NDArray[np.float64]:
    """Precision, recall and F1 in every layer, (3, layers + 1), of two texts' states as `layer_states` gives them.

    Each token counts with its best cosine in the other text; the special tokens at both ends can be matched but do
    not count, as in the package.
    """
    cosines = hypothesis @ reference.transpose(1, 2)
    precision = cosines[:, 1:-1].max(dim=2).values.mean(dim=1)
    recall = cosines[:, :, 1:-1].max(dim=1).values.mean(dim=1)
    return torch.stack([precision, recall, 2 * precision * recall / (precision + recall)]).double().cpu().numpy()


def baselines(options: argparse.Namespace) -> int:
    """Write the baselines; returns the exit code."""
    data, output = Path(options.data), Path(options.output)
    files = sorted((data / "train").glob("*-en.tsv*"))
    if not files:
        raise UserError(f"{data / 'train'} has no XX-en.tsv files: expected English in the first column")
    encoder = load_encoder(options.model, dtype="float32")
    texts = {path.name.partition("-")[0]: list(_texts(path, 1)) for path in files}
    texts["en"] = list(_texts(files[0], 0))
    with closing(progress(len(texts), "languages", "baselines", show=not options.quiet)) as bar:
        for language, found in sorted(texts.items()):
            rows = baseline(encoder, random.Random(options.seed).sample(found, min(options.sentences, len(found))))
            lines = ["LAYER,P,R,F", *(",".join([str(n), *(f"{v:.6f}" for v in row)]) for n, row in enumerate(rows))]
            with whole_file(output / f"{language}.tsv") as new:
                new.write_text("\n".join(lines) + "\n", encoding="utf-8")
            bar.update(1)
    return OK


def baseline(encoder: LoadedEncoder, texts: Sequence[str]) -> NDArray[np.float64]:
    """Mean precision, recall and F1 of unrelated sentences in every layer, (layers + 1, 3)."""
    states = layer_states(encoder, texts)
    partners = range(1, min(PARTNERS, len(states) - 1) + 1)
    found = [layer_scores(own, states[(n + k) % len(states)]) for n, own in enumerate(states) for k in partners]
    made: NDArray[np.float64] = np.mean(found, axis=0).T
    return made


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
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv")
    parser.add_argument("--output", required=True, metavar="BASELINES", help="folder of the files LANG.tsv")
    parser.add_argument("--model", default=DEFAULT_ENCODER, metavar="ID", help=f"encoder (default: {DEFAULT_ENCODER})")
    parser.add_argument("--sentences", type=positive, default=100, metavar="N", help="per language (default: 100)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of their choice (default: 1)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return run(baselines, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
