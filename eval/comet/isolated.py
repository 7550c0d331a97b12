"""Scores translations with unbabel-comet: `python isolated.py REQUEST ANSWER` in the environment of `make comet`.

Imports nothing of this project. The request is a JSON object: `model` (a checkpoint or a hub id), `rows` (objects with
`src`, `mt` and `ref`), `batch_size`, `quiet`. The answer has `scores`, one per row, `weights` (a hash of the
model's), `references` (whether the model reads them) and `version`, or `error`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any


class RefusedError(Exception):
    """What the user has to change, in one sentence."""


def score(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request; raises RefusedError for a model that cannot be downloaded or loaded."""
    import torch

    model = load(request["model"])
    remember_sentences(model)
    predicted = model.predict(
        request["rows"],
        batch_size=request["batch_size"],
        gpus=1 if torch.cuda.is_available() else 0,
        num_workers=0,
        progress_bar=not request["quiet"],
    )
    return {
        "scores": [float(s) for s in predicted.scores],
        "weights": weights_hash(model)[:16],
        "references": model.requires_references(),
        "version": version("unbabel-comet"),
    }


def load(name: str) -> Any:
    """The model of a checkpoint file, or of a hub id, which is downloaded."""
    from comet import download_model, load_from_checkpoint  # type: ignore[import-not-found]

    path = Path(name)
    if not (name.endswith(".ckpt") or path.exists()):
        try:
            path = Path(download_model(name))
        except Exception as error:  # the package turns whatever went wrong into a KeyError of its own
            raise RefusedError(
                f"the COMET model {name!r} cannot be downloaded ({first_line(error)}): check the name, the network "
                "and, for a gated model, `hf auth login`; or give the .ckpt file of a model that is here"
            ) from None
    if not (path.is_file() and (path.parents[1] / "hparams.yaml").is_file()):
        raise RefusedError(
            f"{name} is no COMET checkpoint: expected a file such as MODEL/checkpoints/model.ckpt with "
            "MODEL/hparams.yaml"
        )
    try:
        return load_from_checkpoint(str(path))
    except Exception as error:
        raise RefusedError(
            f"the COMET checkpoint {name} cannot be loaded ({first_line(error)}): download it again, or give another"
        ) from None


def remember_sentences(model: Any) -> None:
    """Encode each different sentence once: sources and references come again with every system.

    The package's own cache goes by an abbreviated print of a batch and can take one batch for another; this one goes
    by all tokens of a sentence.
    """
    import torch

    known: dict[tuple[int, ...], Any] = {}
    encode = model.compute_sentence_embedding

    def compute_sentence_embedding(input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> Any:
        masks = attention_mask.cpu().bool()
        keys = [tuple(ids[mask].tolist()) for ids, mask in zip(input_ids.cpu(), masks, strict=True)]
        rows = list({key: n for n, key in enumerate(keys) if key not in known}.values())
        if rows:
            types = None if token_type_ids is None else token_type_ids[rows]
            vectors = encode(input_ids[rows], attention_mask[rows], token_type_ids=types)
            known.update((keys[row], vector) for row, vector in zip(rows, vectors, strict=True))
        return torch.stack([known[key] for key in keys])

    model.compute_sentence_embedding = compute_sentence_embedding


def weights_hash(model: Any) -> str:
    """The sha256 of a model's weights by name: that of its file also changes with the folders that it names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()


def first_line(error: Exception) -> str:
    """The first line of an error, shortened."""
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:200]


def main() -> int:
    """Command line; returns the exit code."""
    request, answer = map(Path, sys.argv[1:])
    warnings.simplefilter("ignore")  # the packages' logs and advice are not for the user of this program
    import comet  # noqa: F401  (it sets up logging when it is imported)

    logging.disable(logging.WARNING)
    try:
        content = score(json.loads(request.read_text(encoding="utf-8")))
    except RefusedError as error:
        content = {"error": str(error)}
    answer.write_text(json.dumps(content), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
