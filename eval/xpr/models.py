"""Trained XPR models by the role they play in the suite `xpr`.

A folder of models has a folder for each, named for what it was trained on: `supervised.de-en`, `multilingual`,
`seed.2.de-en` (a further seed of `supervised.de-en`), `ablation.NAME.de-en`, `layer.8.de-en` (of so many layers).
Models of other names are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import folder_fingerprint, read_json, remembered_sha256, settings_hash
from rag_mt.models.adapters import TRAINING, adapter_fingerprint
from rag_mt.models.adapters import WEIGHTS as ADAPTER
from retrievers.ccpr.heads import ENCODER
from retrievers.xpr.examples import ExampleSet
from retrievers.xpr.model import HEAD, XprSettings, open_xpr

MULTILINGUAL = "multilingual"
ABLATIONS = {
    "sentences": "without example sentences",
    "momentum": "without momentum",
    "head": "without projection head",
    "queue": "MoCo queue",
}
"""What an ablation is called in a folder's name, and in tables."""


class Models:
    """The models in a folder; only the last one that was opened is held."""

    def __init__(self, folder: Path | None, device: str = "auto", dtype: str = "auto") -> None:
        if folder is not None and not folder.is_dir():
            raise UserError(f"there is no folder {folder}: give --models the folder of trained models")
        self.folder = folder
        self.open = lru_cache(maxsize=1)(lambda name: open_xpr(str(self._path(name)), device, dtype))

    def _path(self, name: str) -> Path:
        return Path(self.folder or "") / name

    def __contains__(self, name: str) -> bool:
        return self.folder is not None and (self._path(name) / XprSettings.FILE).is_file()

    def key(self, name: str) -> dict[str, Any]:
        """All that changes a model's vectors but the number of example sentences: neither how it was trained nor what
        a run needs to go on."""
        folder = self._path(name)
        files = [folder / file for file in (XprSettings.FILE, HEAD) if (folder / file).is_file()]
        adapted = (folder / ADAPTER).is_file()
        encoder = adapter_fingerprint(str(folder)) if adapted else folder_fingerprint(folder / ENCODER)
        return {"model": settings_hash([encoder, *map(remembered_sha256, files)])}

    def key_with(self, name: str, examples: int) -> dict[str, Any] | None:
        """The key with the number of example sentences that are read, none by a model that was trained without; None
        where the model is not there."""
        if name not in self:
            return None
        return {**self.key(name), "examples": examples if XprSettings.load(self._path(name)).sentences else 0}

    def facts(self, name: str, sets: Mapping[str, ExampleSet]) -> dict[str, Any]:
        """What is recorded of a model's training.

        Raises UserError for a model that was trained on other sets or with other settings than its name says, or on
        another version of one of `sets`, whose test phrases it may have seen.
        """
        model = f"the model {self._path(name)}"
        facts: dict[str, Any] = read_json(self._path(name) / TRAINING)
        trained_on = facts["settings"]["data"]["languages"]
        if name != MULTILINGUAL and trained_on != [name.rpartition(".")[2]]:
            raise UserError(f"{model} was trained on {', '.join(trained_on)}: name its folder for that")
        if name == MULTILINGUAL and (without := [pair for pair in sets if pair not in trained_on]):
            raise UserError(
                f"{model} was not trained on {', '.join(without)}: train it on all sets, or give --phrases with those "
                "that it was trained on"
            )
        if unlike := list(_unlike_name(name, facts["settings"])):
            raise UserError(
                f"{model} was trained with {', '.join(unlike)}, which its name does not say: name its folder for what "
                "it is"
            )
        for own in facts["phrases"]:
            if own["name"] in sets and own["files"] != sets[own["name"]].manifest["files"]:
                raise UserError(
                    f"{model} was trained on another version of the set {own['name']}: train it again, or give the "
                    "--phrases that it was trained on"
                )
        return facts


def _unlike_name(name: str, settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The settings of a training that are others than the model's name says."""
    kind, _, rest = name.partition(".")
    value = rest.partition(".")[0]
    for piece, group in (("sentences", "data"), ("momentum", "training"), ("head", "model"), ("queue", "training")):
        ablated = bool(settings[group][piece]) == (piece == "queue")  # the queue is added, the others are left out
        if ablated != (kind == "ablation" and value == piece):
            yield f"{group}.{piece} = {settings[group][piece]}"
    for numbered, group in (("seed", "training"), ("layer", "model")):
        if kind == numbered and settings[group][kind] != int(value):
            yield f"{group}.{kind} = {settings[group][kind]}"
