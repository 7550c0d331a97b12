"""Trained XPR models by the role they play in the suite, and the vectors of phrases in their example sentences.

A folder of models has a folder for each, named for what it was trained on: `supervised.de-en`, `multilingual`,
`seed.2.de-en` (a further seed of `supervised.de-en`), `ablation.NAME.de-en`, `layer.8.de-en` (of so many layers).
Models of other names are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.xpr.cells import Cells
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import folder_fingerprint, read_json, remembered_sha256, settings_hash
from rag_mt.base.types import Floats
from rag_mt.models.adapters import TRAINING, adapter_fingerprint
from rag_mt.models.adapters import WEIGHTS as ADAPTER
from retrievers.ccpr.model import ENCODER
from retrievers.xpr.examples import ExampleSet
from retrievers.xpr.head import WEIGHTS as HEAD
from retrievers.xpr.head import XprSettings
from retrievers.xpr.model import XprEncoder, open_xpr

MULTILINGUAL = "multilingual"
ABLATIONS = {
    "sentences": "without example sentences",
    "momentum": "without momentum",
    "head": "without projection head",
    "queue": "MoCo queue",
}
"""What an ablation is called in a folder's name, and in tables."""

Rows = NDArray[np.int64]


def supervised(pair: str) -> str:
    """The name of the model of one set."""
    return f"supervised.{pair}"


def seed(number: int, pair: str) -> str:
    """The name of a model that differs from `supervised` in its seed."""
    return f"seed.{number}.{pair}"


def ablation(name: str, pair: str) -> str:
    """The name of an ablated model of one set."""
    return f"ablation.{name}.{pair}"


def layer_model(layer: int, pair: str) -> str:
    """The name of a model of one set that ends at a layer."""
    return f"layer.{layer}.{pair}"


def _unlike_name(name: str, settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The settings of a training that are others than the model's name says."""
    kind, _, rest = name.partition(".")
    what = rest.partition(".")[0]
    data, training, model = (settings[group] for group in ("data", "training", "model"))
    pieces = {
        "sentences": ("data.sentences", data["sentences"]),
        "momentum": ("training.momentum", training["momentum"]),
        "head": ("model.head", model["head"]),
        "queue": ("training.queue", training["queue"]),
    }
    for piece, (key, value) in pieces.items():
        ablated = bool(value) == (piece == "queue")  # the queue is added, the others are left out
        if ablated != (kind == "ablation" and what == piece):
            yield f"{key} = {value}"
    if kind == "seed" and training["seed"] != int(what):
        yield f"training.seed = {training['seed']}"
    if kind == "layer" and model["layer"] != int(what):
        yield f"model.layer = {model['layer']}"


class Models:
    """The models in a folder; only the last one that was opened is held."""

    def __init__(self, folder: Path | None, device: str = "auto", dtype: str = "auto") -> None:
        if folder is not None and not folder.is_dir():
            raise UserError(f"there is no folder {folder}: give --models the folder of trained models")
        self.folder = folder
        self.open = lru_cache(maxsize=1)(lambda name: open_xpr(str(self._path(name)), device, dtype))

    def facts(self, name: str, sets: Mapping[str, ExampleSet]) -> dict[str, Any]:
        """What is recorded of a model's training.

        Raises UserError for a model that was trained on other sets or with other settings than its name says, or on
        another version of one of `sets`, whose test phrases it may have seen.
        """
        found: dict[str, Any] = read_json(self._path(name) / TRAINING)
        settings = found["settings"]
        trained_on = settings["data"]["languages"]
        if name != MULTILINGUAL and trained_on != [name.rpartition(".")[2]]:
            raise UserError(
                f"the model {self._path(name)} was trained on {', '.join(trained_on)}: name its folder for that"
            )
        if name == MULTILINGUAL and (without := [pair for pair in sets if pair not in trained_on]):
            raise UserError(
                f"the model {self._path(name)} was not trained on {', '.join(without)}: train it on all sets, or give "
                "--phrases with those that it was trained on"
            )
        if unlike := list(_unlike_name(name, settings)):
            raise UserError(
                f"the model {self._path(name)} was trained with {', '.join(unlike)}, which its name does not say: name "
                "its folder for what it is"
            )
        for own in found["phrases"]:
            if own["name"] in sets and own["files"] != sets[own["name"]].manifest["files"]:
                raise UserError(
                    f"the model {self._path(name)} was trained on another version of the set {own['name']}: train it "
                    "again, or give the --phrases that it was trained on"
                )
        return found

    def __contains__(self, name: str) -> bool:
        return self.folder is not None and (self.folder / name / XprSettings.FILE).is_file()

    def alone(self, name: str) -> bool:
        """Whether a model was trained on phrases without example sentences."""
        return XprSettings.load(self._path(name)).sentences == 0

    def key(self, name: str) -> dict[str, Any]:
        """All that changes a model's vectors but the number of example sentences: neither how it was trained nor what
        a run needs to go on."""
        folder = self._path(name)
        files = [folder / file for file in (XprSettings.FILE, HEAD) if (folder / file).is_file()]
        adapted = (folder / ADAPTER).is_file()
        encoder = adapter_fingerprint(str(folder)) if adapted else folder_fingerprint(folder / ENCODER)
        return {"model": settings_hash([encoder, *map(remembered_sha256, files)])}

    def _path(self, name: str) -> Path:
        return Path(self.folder or "") / name


def example_vectors(
    cells: Cells,
    key: Mapping[str, Any],
    encoder: XprEncoder,
    layer: int,
    own: ExampleSet,
    examples: int,
    side: int,
    rows: Rows,
) -> Floats:
    """The vectors (rows, dimension) of phrases in their first `examples` sentences, without sentences if it is 0, from
    a layer of an encoder.

    Phrases that share sentences are encoded together; what is done stays on disk (`Cells.summed`).
    """
    text = own.sides[side]
    if not examples:
        return encoder.project(encoder.side_states(text.alone(), rows, 1, (layer,))[0])
    grow = partial(encoder.growing_sums, text, rows, (examples,), (layer,))
    return encoder.project(cells.summed(key, side, rows, grow).means[0, 0])
