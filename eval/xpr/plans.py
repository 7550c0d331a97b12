"""The rows of the suite `xpr`: the paper's four settings, its sweeps, transfer between sets, seeds and ablations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from eval.xpr.baselines import Maps, States, Words
from eval.xpr.mapping import centre, normalised, procrustes
from eval.xpr.models import ABLATIONS, MULTILINGUAL, Models, ablation, example_vectors, layer_model, seed, supervised
from eval.xpr.scores import Vectors
from eval.xpr.suite import Plan, Row, Sets, vectors_key
from eval.xpr.word_vectors import WordTraining
from rag_mt.base.types import Floats
from retrievers.units.unit import default_layer
from retrievers.xpr.examples import Split
from retrievers.xpr.model import XprEncoder, untrained_xpr

WORD_TRAINING = WordTraining()
COUNTS = (1, 2, 4, 8, 16, 32)
TRAINED_LAYERS = (4, 6, 8, 10, 12)
WITHOUT_OTHERS = 8
"""Example sentences of a phrase, at most, where the test phrases alone are searched: in the matrix of transfer, with
other seeds and in ablations."""
UNTRAINED, ALONE, MAPPED = "XPR, untrained", "CLSE, no map", "CLSE, map from pairs"
SWEPT = (UNTRAINED, ALONE, MAPPED)
"""What is swept over layers on development pairs; the best layer of each is then used."""


class Plans:
    """The plans over `sets`. Encoders, word vectors and models are opened when they are first needed."""

    def __init__(self, sets: Sets) -> None:
        own = self._settings = sets.settings
        self.sets = sets
        self.models = Models(own.models, own.device, own.dtype)
        self.layers: dict[str, int] = {}
        self._found_states: dict[int, States] = {}
        self._found_maps: dict[int, Maps] = {}
        self.layer_states = lru_cache(maxsize=1)(self._layer_states)
        self.count_states = lru_cache(maxsize=1)(self._count_states)

    @cached_property
    def encoder(self) -> XprEncoder:
        """The encoder without training; its own layer is not used."""
        own = self._settings
        return untrained_xpr(own.encoder, device=own.device, dtype=own.dtype)

    def known_models(self) -> list[str]:
        """The trained models whose names say what they are."""
        pairs = self.sets.every
        known = [MULTILINGUAL, *(supervised(pair) for pair in pairs), *(seed(n, p) for n in (2, 3) for p in pairs)]
        known += [ablation(name, pair) for name in ABLATIONS for pair in pairs]
        known += [layer_model(layer, pair) for layer in TRAINED_LAYERS for pair in pairs]
        return [name for name in known if name in self.models]

    # The layers, on development pairs.

    def by_layer(self) -> list[Plan]:
        """Every layer of each system of `SWEPT`."""
        layers = range(self.encoder.layers + 1)
        return [self._layer_plan(kind, layer) for kind in SWEPT for layer in layers]

    def by_trained_layer(self) -> list[Plan]:
        """XPR trained on one set with layers up to each of `TRAINED_LAYERS`, on its development pairs."""
        pair = self.sets.sweep
        title = f"XPR, trained on {pair}"
        return [
            self._model_plan("layers, trained", f"{title}@{layer}", {pair: layer_model(layer, pair)}, split="dev")
            for layer in TRAINED_LAYERS
            if layer <= self.encoder.layers
        ]

    def choose_layers(self, rows: Sequence[Row]) -> bool:
        """Take the layer of each system of `SWEPT` that is best in the rows of `by_layer`, or the encoder's usual one;
        returns whether all were found in the rows."""
        count = self.encoder.layers + 1
        known = True
        for n, kind in enumerate(SWEPT):
            own = rows[n * count : (n + 1) * count]
            there = not any(row.missing or not row.answers for row in own)
            averages = [row.average for row in own] if there else []
            self.layers[kind] = int(np.argmax(averages)) if there else default_layer(self.encoder)
            known &= there
        return known

    def _layer_plan(self, kind: str, layer: int) -> Plan:
        def vectors(name: str) -> Vectors:
            return lambda side, rows: self.layer_states(kind, name)[side][layer]

        key = partial(self._states_key, kind, layer)
        return Plan("layers", f"{kind}@{layer}", "layers", self.sets.with_dev, key, vectors, split="dev")

    def _states_key(self, kind: str, layer: int, name: str) -> dict[str, Any]:
        examples = self._settings.examples if kind == UNTRAINED else 0
        key = {"states": self.encoder.fingerprint, "layer": layer, "examples": examples}
        return {**key, "map": [self.sets.every[name].manifest["files"]]} if kind == MAPPED else key

    def _layer_states(self, kind: str, name: str) -> tuple[Floats, Floats]:
        """The vectors (layers, phrases, hidden) of both sides of a development task."""
        own, layers = self.sets.every[name], range(self.encoder.layers + 1)
        rows = self.sets.task(name, "dev").candidates
        if kind == UNTRAINED:
            examples = self._settings.examples
            made = [self.encoder.side_states(s, r, examples, layers) for s, r in zip(own.sides, rows, strict=True)]
            return made[0], made[1]
        made = [self.encoder.side_states(s.alone(), r, 1, layers) for s, r in zip(own.sides, rows, strict=True)]
        if kind == MAPPED:
            pairs = own.pairs("train").astype(np.int64)
            train = [self.encoder.side_states(s.alone(), pairs[:, n], 1, layers) for n, s in enumerate(own.sides)]
            for layer in layers:
                means = [centre(side[layer]) for side in train]
                source, target = (normalised(side[layer], mean) for side, mean in zip(train, means, strict=True))
                for side, mean in enumerate(means):
                    made[side][layer] = normalised(made[side][layer], mean)
                made[0][layer] = made[0][layer] @ procrustes(source, target)
        return made[0], made[1]

    # The four settings, on test pairs.

    def four_settings(self) -> list[Plan]:
        """CLWE, CLSE and XPR unsupervised, supervised, zero-shot and multilingual (the paper's table 2)."""
        names, source, every = self.sets.names, self.sets.source, tuple(self.sets.every)
        transfer = tuple(name for name in names if name != source)
        alone: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
        return [
            self._words_plan("unsupervised", alone),
            self._plain_plan(ALONE, "baselines"),
            self._mapped_plan("unsupervised", "CLSE, map without pairs", ALONE, alone),
            self._plain_plan(UNTRAINED, "untrained"),
            *self._trained_plans("supervised", {n: (n,) for n in names}, {n: supervised(n) for n in names}),
            *self._trained_plans(
                "zero-shot", dict.fromkeys(transfer, (source,)), dict.fromkeys(transfer, supervised(source))
            ),
            *self._trained_plans("multilingual", dict.fromkeys(names, every), dict.fromkeys(names, MULTILINGUAL)),
        ]

    def _trained_plans(
        self, part: str, trained_on: Mapping[str, tuple[str, ...]], models: Mapping[str, str]
    ) -> list[Plan]:
        return [
            self._words_plan(part, trained_on),
            self._mapped_plan(part, "CLSE", MAPPED, trained_on),
            self._model_plan(part, "XPR", models, with_others=True),
        ]

    def _plain_plan(self, kind: str, needs: str) -> Plan:
        """An encoder without a map, at its chosen layer."""
        layer = self.layers[kind]
        states_key = partial(self._states_key, kind, layer)

        def vectors(name: str) -> Vectors:
            own = self.sets.every[name]
            if kind == ALONE:
                return partial(self._states(layer).plain, own)
            key = vectors_key(own, states_key(name))
            return partial(example_vectors, self.sets.cells, key, self.encoder, layer, own, self._settings.examples)

        return Plan("unsupervised", kind, needs, self.sets.names, states_key, vectors)

    def _words_plan(self, part: str, trained_on: Mapping[str, tuple[str, ...]]) -> Plan:
        return self._maps_plan(part, "CLWE", self._word_maps, trained_on)

    def _mapped_plan(self, part: str, name: str, kind: str, trained_on: Mapping[str, tuple[str, ...]]) -> Plan:
        return self._maps_plan(part, name, self._state_maps(self.layers[kind]), trained_on)

    def _maps_plan(self, part: str, title: str, maps: Maps | None, trained_on: Mapping[str, tuple[str, ...]]) -> Plan:
        def key(name: str) -> dict[str, Any] | None:
            if maps is None or not maps.can_map(self.sets.every[name], trained_on[name]):
                return None
            return maps.key(trained_on[name])

        def vectors(name: str) -> Vectors:
            assert maps is not None  # or the key would have been None
            return partial(maps.vectors, self.sets.every[name], trained_on[name])

        return Plan(part, title, "baselines", tuple(trained_on), key, vectors)

    @cached_property
    def _word_maps(self) -> Maps | None:
        data = self._settings.data
        if data is None:
            return None
        every = self.sets.every
        return Maps(Words(data, self._settings.runs / "words", list(every.values()), WORD_TRAINING), every)

    # Caches by layer: two layers at most are ever chosen for phrases alone.

    def _states(self, layer: int) -> States:
        if layer not in self._found_states:
            self._found_states[layer] = States(self.encoder, layer)
        return self._found_states[layer]

    def _state_maps(self, layer: int) -> Maps:
        if layer not in self._found_maps:
            self._found_maps[layer] = Maps(self._states(layer), self.sets.every)
        return self._found_maps[layer]

    # Trained models.

    def _model_plan(
        self, part: str, title: str, models: Mapping[str, str], with_others: bool = False, split: Split = "test"
    ) -> Plan:
        """Models by the set that they are asked on."""
        all_examples = with_others or split == "dev"
        most = self._settings.examples if all_examples else min(WITHOUT_OTHERS, self._settings.examples)

        def key(name: str) -> dict[str, Any] | None:
            return self._model_key(models[name], most)

        def vectors(name: str) -> Vectors:
            own, model = self.sets.every[name], models[name]
            found = vectors_key(own, key(name) or {})
            encoder = self.models.open(model)
            layer = encoder.settings.layer
            return partial(example_vectors, self.sets.cells, found, encoder, layer, own, found["examples"])

        return Plan(part, title, "models", tuple(models), key, vectors, split, with_others)

    def _model_key(self, model: str, examples: int) -> dict[str, Any] | None:
        if model not in self.models:
            return None
        return {**self.models.key(model), "examples": 0 if self.models.alone(model) else examples}

    def matrix(self) -> list[Plan]:
        """The model of each set on every set (the paper's table 7), among the test phrases alone."""
        names = self.sets.names
        return [self._model_plan("matrix", source, dict.fromkeys(names, supervised(source))) for source in names]

    def seeds(self) -> list[Plan]:
        """Models of one set with other seeds, among the test phrases alone."""
        pair = self.sets.sweep
        models = [supervised(pair), seed(2, pair), seed(3, pair)]
        return [self._model_plan("seeds", model, {pair: model}) for model in models]

    def ablations(self) -> list[Plan]:
        """Models without a piece of XPR (tables 3 and 5), among the test phrases alone, and the one without example
        sentences in zero-shot transfer."""
        names, source = self.sets.names, self.sets.source
        found = [pair for pair in names if any(ablation(name, pair) in self.models for name in ABLATIONS)]
        pairs = found or [self.sets.sweep]
        made = [self._model_plan("ablations", "XPR", {pair: supervised(pair) for pair in pairs})]
        for name, title in ABLATIONS.items():
            made.append(self._model_plan("ablations", title, {pair: ablation(name, pair) for pair in pairs}))
        transfer = [name for name in names if name != source]
        for title, model in (("XPR", supervised(source)), (ABLATIONS["sentences"], ablation("sentences", source))):
            made.append(self._model_plan("ablations, zero-shot", title, dict.fromkeys(transfer, model)))
        return made

    # The number of example sentences, on development pairs.

    def by_count(self) -> list[Plan]:
        """The untrained encoder and the trained model of one set with 1 to 32 example sentences (figure 2)."""
        pair = self.sets.sweep
        return [self._count_plan(title, model, n) for title, model in self._counted(pair) for n in range(len(COUNTS))]

    def _counted(self, pair: str) -> list[tuple[str, str]]:
        return [(UNTRAINED, ""), (f"XPR, trained on {pair}", supervised(pair))]

    def _count_plan(self, title: str, model: str, place: int) -> Plan:
        pair, layer = self.sets.sweep, self.layers[UNTRAINED]

        def key(name: str) -> dict[str, Any] | None:
            untrained = {"states": self.encoder.fingerprint, "layer": layer}
            found = self._model_key(model, COUNTS[place]) if model else untrained
            return found and {**found, "examples": COUNTS[place]}

        def vectors(name: str) -> Vectors:
            return lambda side, rows: self.count_states(model, name)[side][place]

        return Plan("examples", f"{title}@{COUNTS[place]}", "examples", (pair,), key, vectors, split="dev")

    def _count_states(self, model: str, name: str) -> tuple[Floats, Floats]:
        """The vectors (counts, phrases, dimension) of both sides of a development task."""
        encoder = self.models.open(model) if model else self.encoder
        layer = encoder.settings.layer if model else self.layers[UNTRAINED]
        made = []
        for side, rows in zip(self.sets.every[name].sides, self.sets.task(name, "dev").candidates, strict=True):
            states = encoder.side_states_by_count(side, rows, COUNTS, (layer,))
            made.append(np.stack([encoder.project(own[0]) for own in states]))
        return made[0], made[1]
