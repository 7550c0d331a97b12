"""The rows of the suite `xpr`: the paper's four settings, its sweeps, transfer between sets, seeds and ablations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.xpr.baselines import WORD_TRAINING, Maps, States, Words
from eval.xpr.suite import Plan, Row, Sets, System
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import folder_fingerprint, read_json, remembered_sha256, settings_hash
from rag_mt.base.types import Floats
from rag_mt.models.adapters import TRAINING, adapter_fingerprint
from rag_mt.models.adapters import WEIGHTS as ADAPTER
from retrievers.ccpr.heads import ENCODER
from retrievers.units.phrases import default_layer
from retrievers.xpr.examples import ExampleSet, Split
from retrievers.xpr.model import HEAD, XprEncoder, XprSettings, open_xpr, untrained_xpr

COUNTS = (1, 2, 4, 8, 16, 32)
TRAINED_LAYERS = (4, 6, 8, 10, 12)
WITHOUT_OTHERS = 8
"""Example sentences of a phrase, at most, where the test phrases alone are searched: in the matrix of transfer, with
other seeds and in ablations."""
UNTRAINED, ALONE, MAPPED = "XPR, untrained", "CLSE, no map", "CLSE, map from pairs"
SWEPT = (UNTRAINED, ALONE, MAPPED)
"""What is swept over layers on development pairs; the best layer of each is then used."""

MULTILINGUAL = "multilingual"
ABLATIONS = {
    "sentences": "without example sentences",
    "momentum": "without momentum",
    "head": "without projection head",
    "queue": "MoCo queue",
}
"""What an ablation is called in a folder's name, and in tables."""

TrainedOn = Mapping[str, tuple[str, ...]]
"""For each set that is asked the sets that the system for it is trained on."""


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


class Plans:
    """The plans over `sets`. Encoders, word vectors and models are opened when they are first needed."""

    def __init__(self, sets: Sets) -> None:
        options = self._options = sets.options
        self.sets = sets
        self.models = Models(Path(options.models) if options.models else None, options.device, options.dtype)
        self.layers: dict[str, int] = {}
        self.state_maps = lru_cache(maxsize=2)(lambda layer: Maps(States(self.encoder, layer), sets.every))

    @cached_property
    def encoder(self) -> XprEncoder:
        """The encoder without training; its own layer is not used."""
        options = self._options
        return untrained_xpr(options.encoder, device=options.device, dtype=options.dtype)

    @cached_property
    def word_maps(self) -> Maps | None:
        """The maps of word vectors; None without text to train those on."""
        if not self._options.data:
            return None
        folder = Path(self._options.runs) / "words"
        return Maps(Words(Path(self._options.data), folder, WORD_TRAINING), self.sets.every)

    def known_models(self) -> list[str]:
        """The trained models whose names say what they are."""
        kinds = ["supervised", "seed.2", "seed.3", *(f"ablation.{name}" for name in ABLATIONS)]
        kinds += [f"layer.{layer}" for layer in TRAINED_LAYERS]
        names = [MULTILINGUAL, *(f"{kind}.{pair}" for kind in kinds for pair in self.sets.every)]
        return [name for name in names if name in self.models]

    # The layers, on development pairs.

    def by_layer(self) -> list[Plan]:
        """Every layer of each system of `SWEPT`."""
        layers, names = range(self.encoder.layers + 1), self.sets.with_dev
        untrained, trained_on = dict.fromkeys(names, ""), {name: (name,) for name in names}
        plans = [
            self._xpr_plan("layers", f"{kind}@{layer}", untrained, examples, layer, needs="layers", split="dev")
            for kind, examples in ((UNTRAINED, self._options.examples), (ALONE, 0))
            for layer in layers
        ]
        for layer in layers:
            maps = partial(self.state_maps, layer)
            plans.append(self._maps_plan("layers", f"{MAPPED}@{layer}", maps, trained_on, needs="layers", split="dev"))
        return plans

    def by_trained_layer(self) -> list[Plan]:
        """XPR trained on one set with layers up to each of `TRAINED_LAYERS`, on its development pairs."""
        pair, examples = self.sets.sweep, self._options.examples
        models = {layer: {pair: f"layer.{layer}.{pair}"} for layer in TRAINED_LAYERS if layer <= self.encoder.layers}
        return [
            self._xpr_plan("layers, trained", f"XPR, trained on {pair}@{layer}", model, examples, split="dev")
            for layer, model in models.items()
        ]

    def choose_layers(self, rows: Sequence[Row]) -> bool:
        """Take the layer of each system of `SWEPT` that is best in the rows of `by_layer`, or the encoder's usual one;
        returns whether all were found in the rows."""
        count = self.encoder.layers + 1
        complete = []
        for n, kind in enumerate(SWEPT):
            own = rows[n * count : (n + 1) * count]
            complete.append(all(row.answers and not row.missing for row in own))
            best = int(np.argmax([row.average for row in own])) if complete[-1] else default_layer(self.encoder)
            self.layers[kind] = best
        return all(complete)

    # The four settings, on test pairs.

    def four_settings(self) -> list[Plan]:
        """CLWE, CLSE and XPR unsupervised, supervised, zero-shot and multilingual (the paper's table 2)."""
        names, source, examples = self.sets.names, self.sets.source, self._options.examples
        transfer = [name for name in names if name != source]
        layers = self.layers
        untrained, nothing = dict.fromkeys(names, ""), dict.fromkeys(names, ())
        plain = partial(self._xpr_plan, "unsupervised", with_others=True)
        plans = [
            self._maps_plan("unsupervised", "CLWE", lambda: self.word_maps, nothing),
            plain(ALONE, untrained, 0, layers[ALONE], needs="baselines"),
            self._maps_plan(
                "unsupervised", "CLSE, map without pairs", partial(self.state_maps, layers[ALONE]), nothing
            ),
            plain(UNTRAINED, untrained, examples, layers[UNTRAINED], needs="untrained"),
        ]
        trained: tuple[tuple[str, TrainedOn, dict[str, str]], ...] = (
            ("supervised", {name: (name,) for name in names}, {name: f"supervised.{name}" for name in names}),
            ("zero-shot", dict.fromkeys(transfer, (source,)), dict.fromkeys(transfer, f"supervised.{source}")),
            ("multilingual", dict.fromkeys(names, tuple(self.sets.every)), dict.fromkeys(names, MULTILINGUAL)),
        )
        for part, trained_on, models in trained:
            plans.append(self._maps_plan(part, "CLWE", lambda: self.word_maps, trained_on))
            plans.append(self._maps_plan(part, "CLSE", partial(self.state_maps, layers[MAPPED]), trained_on))
            plans.append(self._xpr_plan(part, "XPR", models, examples, with_others=True))
        return plans

    def _maps_plan(
        self,
        part: str,
        title: str,
        maps: Callable[[], Maps | None],
        trained_on: TrainedOn,
        needs: str = "baselines",
        split: Split = "test",
    ) -> Plan:
        def system(name: str) -> System | None:
            examples, sources, found = self.sets.every[name], trained_on[name], maps()
            if found is None or not found.can_map(examples, sources):
                return None
            return System(found.key(sources), partial(found.vectors, examples, sources))

        return Plan(part, title, needs, tuple(trained_on), system, split)

    def _xpr_plan(
        self,
        part: str,
        title: str,
        models: Mapping[str, str],
        examples: int,
        layer: int = 0,
        needs: str = "models",
        split: Split = "test",
        with_others: bool = False,
    ) -> Plan:
        """Trained models by the set that they are asked on, or (model "") a layer of the untrained encoder, with so
        many example sentences."""

        def system(name: str) -> System | None:
            model = models[name]
            untrained = {"states": self.encoder.fingerprint, "layer": layer, "examples": examples}
            key = self.models.key_with(model, examples) if model else untrained
            return System(key, partial(self._example_vectors, name, model, layer, key["examples"])) if key else None

        return Plan(part, title, needs, tuple(models), system, split, with_others)

    def _example_vectors(
        self, name: str, model: str, layer: int, examples: int, side: int, phrases: NDArray[np.int64]
    ) -> Floats:
        encoder = self.models.open(model) if model else self.encoder
        layer = encoder.settings.layer if model else layer
        return encoder.project(encoder.side_states(self.sets.every[name].sides[side], phrases, examples, layer))

    # Trained models, among the test phrases alone.

    def among_own(self) -> list[Plan]:
        """The model of each set on every set (the paper's table 7); models of one set with other seeds; models without
        a piece of XPR (tables 3 and 5), and the one without example sentences in zero-shot transfer."""
        names, source, sweep = self.sets.names, self.sets.source, self.sets.sweep
        transfer = [name for name in names if name != source]
        ablated = [pair for pair in names if any(f"ablation.{name}.{pair}" in self.models for name in ABLATIONS)]
        kinds = {"supervised": "XPR", **{f"ablation.{name}": title for name, title in ABLATIONS.items()}}
        rows = [("matrix", pair, dict.fromkeys(names, f"supervised.{pair}")) for pair in names]
        rows += [
            ("seeds", f"{kind}.{sweep}", {sweep: f"{kind}.{sweep}"}) for kind in ("supervised", "seed.2", "seed.3")
        ]
        rows += [
            ("ablations", title, {pair: f"{kind}.{pair}" for pair in ablated or [sweep]})
            for kind, title in kinds.items()
        ]
        rows += [
            ("ablations, zero-shot", kinds[kind], dict.fromkeys(transfer, f"{kind}.{source}"))
            for kind in ("supervised", "ablation.sentences")
        ]
        return [self._xpr_plan(*row, min(WITHOUT_OTHERS, self._options.examples)) for row in rows]

    # The number of example sentences, on development pairs.

    def by_count(self) -> list[Plan]:
        """The untrained encoder and the trained model of one set with 1 to 32 example sentences (figure 2)."""
        pair, layer = self.sets.sweep, self.layers[UNTRAINED]
        systems = {UNTRAINED: "", f"XPR, trained on {pair}": f"supervised.{pair}"}
        return [
            self._xpr_plan("examples", f"{title}@{count}", {pair: model}, count, layer, needs="examples", split="dev")
            for title, model in systems.items()
            for count in COUNTS
        ]
