"""Trains a small COMET model: `python comet_fit.py REQUEST ANSWER` in the environment of `make comet`.

Imports nothing of this project beside its sibling `comet_run`. Model, loss, validation and training loop are
unbabel-comet's and pytorch-lightning's. The encoder stays frozen, so that each sentence is encoded once: what is
remembered of it are the means of its token states in every layer. A learnt mixture of layers without layer
normalisation is linear, so the mixture of the means is the mean of the mixtures, and a plain COMET model with these
weights gives the same scores.

The request is a JSON object: `kind` (`reference` or `reference-free`), `encoder` (a folder), `model` (arguments of the
COMET class), `training` (seed, max_epochs, patience, encode_batch_size), `train` (CSV files, one per epoch in turn),
`dev` (CSV files), `head` (the safetensors file to write), `states` (a file that keeps what was encoded, or null) and
`scratch` (a folder).
The answer has the validation scores of each epoch, the best of them, and `version`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

HEAD = ("estimator.", "layerwise_attention.")
"""What is trained; all else is the encoder."""
MONITOR = "val_kendall"
SAVED_EVERY = 1000
"""New sentences until the file of states is written again."""


def fit(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request: the model that was best on the dev data is written to `head`."""
    import pytorch_lightning as lightning  # type: ignore[import-not-found]
    import torch
    from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint  # type: ignore[import-not-found]
    from safetensors.torch import save_file

    training = request["training"]
    lightning.seed_everything(training["seed"], workers=True)
    model = frozen(request["kind"])(
        **request["model"],
        pretrained_model=request["encoder"],
        layer="mix",
        layer_norm=False,
        pool="avg",
        nr_frozen_epochs=training["max_epochs"] + 1,
        keep_embeddings_frozen=True,
        train_data=request["train"],
        validation_data=request["dev"],
        local_files_only=True,
    )
    remember(model, [*request["train"], *request["dev"]], training["encode_batch_size"], request["states"])
    curve = Curve()
    best = ModelCheckpoint(request["scratch"], "best", MONITOR, mode="max", save_weights_only=True)
    trainer = lightning.Trainer(
        max_epochs=training["max_epochs"],
        callbacks=[best, EarlyStopping(MONITOR, mode="max", patience=training["patience"]), curve.callback()],
        logger=False,
        enable_model_summary=False,
        enable_progress_bar=not request["quiet"],
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
    )
    trainer.fit(model)
    weights = torch.load(best.best_model_path, map_location="cpu", weights_only=False)["state_dict"]
    names = [name for name, _ in model.named_parameters() if name.startswith(HEAD)]
    head = {name: weights[name].to(torch.float16).contiguous() for name in names}
    save_file(head, request["head"])
    return {"curve": curve.points, "best": float(best.best_model_score), "version": version("unbabel-comet")}


def frozen(kind: str) -> Any:
    """The COMET class of a kind, reading sentence vectors from what `remember` has kept."""
    import torch
    from comet.models import ReferencelessRegression, RegressionMetric  # type: ignore[import-not-found]

    base: Any = {"reference": RegressionMetric, "reference-free": ReferencelessRegression}[kind]

    class Frozen(base):  # type: ignore[misc]
        """Without an encoder pass per step. `states`: (sentences, layers, hidden); `places`: rows by sentence."""

        states: Any
        places: dict[str, int]

        def compute_sentence_embedding(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> Any:
            rows = [self.places[key] for key in keys_of(input_ids, attention_mask)]
            means = self.states[rows].to(input_ids.device, torch.float32)
            ones = torch.ones(len(rows), 1, device=input_ids.device)
            return self.layerwise_attention([m[:, None] for m in means.unbind(1)], ones)[:, 0]

    return Frozen


def remember(model: Any, tables: list[str], batch_size: int, kept: str | None) -> None:
    """Encode every text of the tables once and give `model` its states.

    `kept` is a file of earlier ones, to which the new ones are added every few batches.
    """
    import torch
    from tqdm import tqdm

    places, blocks = {}, []
    if kept and Path(kept).is_file():
        found = torch.load(kept, weights_only=True)
        places, blocks = found["places"], [found["states"]]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.encoder.eval().to(device)
    texts = sorted({text for table in tables for text in texts_of(table)}, key=lambda text: (len(text), text))
    bar = tqdm(total=len(texts), desc="encoding", unit=" sentences", mininterval=10)
    unsaved = 0
    for start in range(0, len(texts), batch_size):
        batch = model.encoder.prepare_sample(texts[start : start + batch_size])
        bar.update(len(batch["input_ids"]))
        keys = keys_of(batch["input_ids"], batch["attention_mask"])
        rows = list({key: n for n, key in enumerate(keys) if key not in places}.values())
        if rows:
            ids, mask = (batch[name][rows].to(device) for name in ("input_ids", "attention_mask"))
            blocks.append(layer_means(model.encoder, ids, mask).to("cpu", torch.float16))
            first = len(places)
            places.update((keys[row], first + n) for n, row in enumerate(rows))
            unsaved += len(rows)
        if kept and unsaved and (unsaved > SAVED_EVERY or start + batch_size >= len(texts)):
            blocks, unsaved = [torch.cat(blocks)], 0
            torch.save({"places": places, "states": blocks[0]}, f"{kept}.part")
            Path(f"{kept}.part").replace(kept)
    bar.close()
    model.encoder.cpu()
    model.states, model.places = torch.cat(blocks), places


def layer_means(encoder: Any, ids: Any, mask: Any) -> Any:
    """The mean state of each sentence's tokens in every layer, (sentences, layers, hidden)."""
    import torch
    from comet.models.pooling_utils import average_pooling  # type: ignore[import-not-found]

    pad, end = encoder.tokenizer.pad_token_id, encoder.tokenizer.sep_token_id
    with torch.no_grad(), torch.autocast(ids.device.type, dtype=torch.bfloat16):
        layers = encoder(ids, mask)["all_layers"]
    return torch.stack([average_pooling(ids, layer.float(), mask, pad, end) for layer in layers], dim=1)


def keys_of(input_ids: Any, attention_mask: Any) -> list[str]:
    """A name for each sentence of a batch, by all of its tokens and none of the padding."""
    ids, lengths = input_ids.cpu().numpy(), attention_mask.sum(1).tolist()
    return [hashlib.sha256(row[:length].tobytes()).hexdigest()[:32] for row, length in zip(ids, lengths, strict=True)]


def texts_of(table: str) -> list[str]:
    """All texts of a CSV file."""
    with Path(table).open(encoding="utf-8", newline="") as file:
        return [row[name] for row in csv.DictReader(file) for name in ("src", "mt", "ref") if name in row]


class Curve:
    """The validation scores of each epoch."""

    def __init__(self) -> None:
        self.points: list[dict[str, float]] = []

    def callback(self) -> Any:
        """What tells of an epoch's end."""
        from pytorch_lightning.callbacks import LambdaCallback

        return LambdaCallback(on_validation_end=lambda trainer, model: self.note(trainer))

    def note(self, trainer: Any) -> None:
        """Keep the scores that the model has logged."""
        names = ("val_pearson", "val_spearman", "val_kendall")
        point = {name.removeprefix("val_"): round(float(trainer.callback_metrics[name]), 4) for name in names}
        self.points.append({"epoch": trainer.current_epoch + 1} | point)


def main() -> int:
    """Command line; returns the exit code."""
    sys.path.append(str(Path(__file__).parent))
    from comet_run import answer, first_line, quiet  # type: ignore[import-not-found]

    asked, answered = sys.argv[1:]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    quiet()
    try:
        answer(answered, fit(json.loads(Path(asked).read_text(encoding="utf-8"))))
    except (TypeError, ValueError) as error:  # arguments that COMET's classes do not take
        answer(answered, {"error": f"unbabel-comet cannot train with these settings: {first_line(error)}"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
