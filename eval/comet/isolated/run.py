"""Scores translations with unbabel-comet: `python comet_run.py REQUEST ANSWER` in the environment of `make comet`.

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
    """The answer to a request; raises RefusedError for a model that cannot be had or read."""
    import torch

    path = checkpoint_of(request["model"])
    model = load(request["model"], path)
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


def checkpoint_of(name: str) -> Path:
    """The checkpoint file of a name, downloaded if it is a hub id."""
    from comet import download_model  # type: ignore[import-not-found]

    if name.endswith(".ckpt") or Path(name).exists():
        return Path(name)
    try:
        return Path(download_model(name))
    except Exception as error:  # the package turns whatever went wrong into a KeyError of its own
        raise RefusedError(
            f"the COMET model {name!r} cannot be downloaded ({first_line(error)}): check the name, the network and, "
            f"for a gated model, `hf auth login`; or give the .ckpt file of a model that is here"
        ) from None


def load(name: str, path: Path) -> Any:
    """The model of a checkpoint."""
    from comet import load_from_checkpoint

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
            made = encode(input_ids[rows], attention_mask[rows], token_type_ids=types)
            known.update((keys[row], vector) for row, vector in zip(rows, made, strict=True))
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


def quiet() -> None:
    """Without the packages' logs and advice, which are not for the user of this program."""
    warnings.simplefilter("ignore")
    import comet  # noqa: F401  (it sets up logging when it is imported)

    logging.disable(logging.WARNING)


def answer(path: str, made: dict[str, Any]) -> None:
    """Write the answer."""
    Path(path).write_text(json.dumps(made), encoding="utf-8")


def main() -> int:
    """Command line; returns the exit code."""
    asked, answered = sys.argv[1:]
    quiet()
    try:
        answer(answered, score(json.loads(Path(asked).read_text(encoding="utf-8"))))
    except RefusedError as error:
        answer(answered, {"error": str(error)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
