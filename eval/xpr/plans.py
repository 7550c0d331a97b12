"""The rows of the suite `xpr`: the paper's four settings, its sweeps, transfer between sets, seeds and ablations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.xpr.baselines import Maps, States, Words
from eval.xpr.suite import Plan, Row, Sets, System
from rag_mt.base.errors import UserError
from rag_mt.base.files import folder_fingerprint, read_json, remembered_sha256, settings_hash
from rag_mt.base.types import Floats
from rag_mt.models.adapter_files import TRAINING, adapter_fingerprint
from rag_mt.models.adapter_files import WEIGHTS as ADAPTER
from retrievers.ccpr.model import ENCODER
from retrievers.units.unit import default_layer
from retrievers.xpr.examples import ExampleSet
from retrievers.xpr.model import HEAD, XprEncoder, XprSettings, open_xpr, untrained_xpr

COUNTS = (1, 2, 4, 8, 16, 32)
TRAINED_LAYERS = (4, 6, 8, 10, 12)
SEEDS = (2, 3)
UNTRAINED, ALONE, MAPPED = "XPR, untrained", "CLSE, no map", "CLSE, map from pairs"
SWEPT = (UNTRAINED, ALONE, MAPPED)
"""What is swept over layers on development pairs; the best layer of each is then used."""

MULTILINGUAL = "multilingual"
ABLATIONS = {
    "sentences": "without example sentences",
    "momentum": "without momentum",
    "head": "without projection head",
    "queue": "MoCo queue",
    "head_on": "head on each token",
}
"""What an ablation is called in a folder's name, and in tables."""

PIECES = {"sentences": "data", "momentum": "training", "head": "model", "queue": "training", "head_on": "model"}
"""The settings of ablations, and the sections that they stand in."""

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

    def key(self, name: str, examples: int) -> dict[str, Any] | None:
        """All that changes the vectors of a model that reads so many example sentences (none if it was trained
        without): neither how it was trained nor what a run needs to go on. None where the model is not there."""
        if name not in self:
            return None
        folder = self._path(name)
        files = [folder / file for file in (XprSettings.FILE, HEAD) if (folder / file).is_file()]
        adapted = (folder / ADAPTER).is_file()
        encoder = adapter_fingerprint(str(folder)) if adapted else folder_fingerprint(folder / ENCODER)
        model = settings_hash([encoder, *map(remembered_sha256, files)])
        return {"model": model, "examples": examples if XprSettings.load(folder).sentences else 0}

    def facts(self, name: str, sets: Mapping[str, ExampleSet]) -> dict[str, Any]:
        """What is recorded of a model's training.

        Raises UserError for a model that was trained on other sets or with other settings than its name says, or on
        another version of one of `sets`, whose test phrases it may have seen.
        """
        facts: dict[str, Any] = read_json(self._path(name) / TRAINING)
        for mistake in _mistakes(name, facts, sets):
            raise UserError(f"the model {self._path(name)} was {mistake}")
        return facts


def _kinds(kind: str, values: Iterable[object]) -> list[str]:
    """Models of a kind, as their names begin: `seed.2`, `seed.3`."""
    return [f"{kind}.{value}" for value in values]


def _mistakes(name: str, facts: Mapping[str, Any], sets: Mapping[str, ExampleSet]) -> Iterator[str]:
    """What speaks against asking a model on `sets` under its name."""
    kind, _, rest = name.partition(".")
    value = rest.partition(".")[0]
    settings, trained_on = facts["settings"], facts["settings"]["data"]["languages"]
    if name != MULTILINGUAL and trained_on != [name.rpartition(".")[2]]:
        yield f"trained on {', '.join(trained_on)}: name its folder for that"
    if name == MULTILINGUAL and (without := [pair for pair in sets if pair not in trained_on]):
        yield (
            f"not trained on {', '.join(without)}: train it on all sets, or give --phrases with those that it was "
            "trained on"
        )
    unlike = []
    for piece, group in PIECES.items():
        own = settings[group].get(piece, "mean")  # runs are older than head_on
        # The queue is added, the head moved, the others are left out.
        ablated = own == "tokens" if piece == "head_on" else bool(own) == (piece == "queue")
        if ablated != (kind == "ablation" and value == piece):
            unlike.append(f"{group}.{piece} = {own}")
    for group in ("training", "model"):
        if kind in ("seed", "layer") and settings[group].get(kind, int(value)) != int(value):
            unlike.append(f"{group}.{kind} = {settings[group][kind]}")
    if unlike:
        yield f"trained with {', '.join(unlike)}, which its name does not say: name its folder for what it is"
    for own in facts["phrases"]:
        if own["name"] in sets and own["files"] != sets[own["name"]].manifest["files"]:
            yield (
                f"trained on another version of the set {own['name']}: train it again, or give the --phrases that it "
                "was trained on"
            )


class Plans:
    """The plans over `sets`. Encoders, word vectors and models are opened when they are first needed."""

    def __init__(self, sets: Sets) -> None:
        options = self._options = sets.options
        self.sets = sets
        self.models = Models(Path(options.models) if options.models else None, options.device, options.dtype)
        self.layers: dict[str, int] = {}
        self.word_maps = cache(self._word_maps)
        self.state_maps = lru_cache(maxsize=2)(lambda layer: Maps(States(self.encoder, layer), sets.every))

    @cached_property
    def encoder(self) -> XprEncoder:
        """The encoder without training; its own layer is not used."""
        return untrained_xpr(self._options.encoder, device=self._options.device, dtype=self._options.dtype)

    def _word_maps(self) -> Maps | None:
        """The maps of word vectors; None without text to train those on."""
        if not self._options.data:
            return None
        return Maps(Words(Path(self._options.data), Path(self._options.runs) / "words"), self.sets.every)

    def known_models(self) -> list[str]:
        """The trained models whose names say what they are."""
        kinds = ["supervised", *_kinds("seed", SEEDS), *_kinds("ablation", ABLATIONS), *_kinds("layer", TRAINED_LAYERS)]
        names = [MULTILINGUAL, *(f"{kind}.{pair}" for kind in kinds for pair in self.sets.every)]
        return [name for name in names if name in self.models]

    def by_layer(self) -> list[Plan]:
        """Every layer of each system of `SWEPT`, on development pairs."""
        layers, names = range(self.encoder.layers + 1), self.sets.with_dev
        untrained, trained_on = dict.fromkeys(names, ""), {name: (name,) for name in names}
        plans = [
            self._xpr_plan("layers", f"{kind}@{layer}", untrained, examples, layer, needs="layers")
            for kind, examples in ((UNTRAINED, self._options.examples), (ALONE, 0))
            for layer in layers
        ]
        for layer in layers:
            maps = partial(self.state_maps, layer)
            plans.append(self._maps_plan("layers", f"{MAPPED}@{layer}", maps, trained_on, needs="layers"))
        return plans

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

    def tables(self) -> list[Plan]:
        """All other rows, for which `choose_layers` has been asked."""
        names, options, layers = self.sets.names, self._options, self.layers
        source = names[0]  # of zero-shot transfer and of the numbers of example sentences
        own, untrained, nothing = f"supervised.{source}", dict.fromkeys(names, ""), dict.fromkeys(names, ())
        transfer = [name for name in names if name != source]
        pairless = partial(self.state_maps, layers[ALONE])
        title = "XPR, trained on {}".format
        plans = [
            self._xpr_plan("layers, trained", f"{title(name)}@{n}", {name: f"layer.{n}.{name}"}, options.examples)
            for name in self._trained(_kinds("layer", TRAINED_LAYERS))
            for n in TRAINED_LAYERS
            if n <= self.encoder.layers
        ]

        # The paper's table 2.
        part = "unsupervised"
        plans += [
            self._maps_plan(part, "CLWE", self.word_maps, nothing),
            self._xpr_plan(part, ALONE, untrained, 0, layers[ALONE], needs="baselines"),
            self._maps_plan(part, "CLSE, map without pairs", pairless, nothing),
            self._xpr_plan(part, UNTRAINED, untrained, options.examples, layers[UNTRAINED], needs="untrained"),
        ]
        trained: tuple[tuple[str, TrainedOn, dict[str, str]], ...] = (
            ("supervised", {name: (name,) for name in names}, {name: f"supervised.{name}" for name in names}),
            ("zero-shot", dict.fromkeys(transfer, (source,)), dict.fromkeys(transfer, own)),
            ("multilingual", dict.fromkeys(names, tuple(self.sets.every)), dict.fromkeys(names, MULTILINGUAL)),
        )
        for part, trained_on, models in trained:
            plans.append(self._maps_plan(part, "CLWE", self.word_maps, trained_on))
            plans.append(self._maps_plan(part, "CLSE", partial(self.state_maps, layers[MAPPED]), trained_on))
            plans.append(self._xpr_plan(part, "XPR", models, options.examples))

        # The paper's table 7, seeds, and its tables 3 and 5.
        seeds, ablated = _kinds("seed", SEEDS), self._trained(_kinds("ablation", ABLATIONS))
        kinds = {"supervised": "XPR", **{f"ablation.{kind}": piece for kind, piece in ABLATIONS.items()}}
        rows = [("matrix", name, dict.fromkeys(names, f"supervised.{name}")) for name in names]
        seeded = [f"{kind}.{name}" for name in self._trained(seeds) for kind in ("supervised", *seeds)]
        rows += [("seeds", model, {model.rpartition(".")[2]: model}) for model in seeded]
        for kind, piece in kinds.items():
            rows.append(("ablations", piece, {name: f"{kind}.{name}" for name in ablated}))
        for kind in ("supervised", "ablation.sentences"):
            rows.append(("ablations, zero-shot", kinds[kind], dict.fromkeys(transfer, f"{kind}.{source}")))
        plans += [self._xpr_plan(*row, options.examples) for row in rows]

        # The paper's figure 2.
        for system, model in ((UNTRAINED, ""), (title(source), own)):
            for count in COUNTS:
                row = ("examples", f"{system}@{count}", {source: model}, count, layers[UNTRAINED])
                plans.append(self._xpr_plan(*row, needs="examples"))
        return plans

    def _trained(self, kinds: Sequence[str]) -> list[str]:
        """The sets that are asked and have a model of one of these kinds, or else the first set alone: what is missing
        is told of that one."""
        names = [name for name in self.sets.names if any(f"{kind}.{name}" in self.models for kind in kinds)]
        return names or [self.sets.names[0]]

    def _maps_plan(
        self, part: str, title: str, maps: Callable[[], Maps | None], trained_on: TrainedOn, needs: str = "baselines"
    ) -> Plan:
        def system(name: str) -> System | None:
            examples, sources, chosen = self.sets.every[name], trained_on[name], maps()
            if chosen is None or not chosen.can_map(examples, sources):
                return None
            return System(chosen.key(sources), partial(chosen.vectors, examples, sources))

        return Plan(part, title, needs, tuple(trained_on), system)

    def _xpr_plan(
        self, part: str, title: str, models: Mapping[str, str], examples: int, layer: int = 0, needs: str = "models"
    ) -> Plan:
        """Trained models by the set that they are asked on, or (model "") a layer of the untrained encoder, with so
        many example sentences."""

        def system(name: str) -> System | None:
            model = models[name]
            key = self.models.key(model, examples)
            if not model:
                key = {"states": self.encoder.fingerprint, "layer": layer, "examples": examples}
            return System(key, partial(self._example_vectors, name, model, layer, key["examples"])) if key else None

        return Plan(part, title, needs, tuple(models), system)

    def _example_vectors(
        self, name: str, model: str, layer: int, examples: int, side: int, phrases: NDArray[np.int64]
    ) -> Floats:
        encoder = self.models.open(model) if model else self.encoder
        layer = encoder.settings.layer if model else layer
        return encoder.project(encoder.side_states(self.sets.every[name].sides[side], phrases, examples, layer))
