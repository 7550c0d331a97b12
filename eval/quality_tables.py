"""The Markdown report of how metrics agree with human scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eval.comet_checkpoint import TRAINING
from eval.quality_contrast import FEW, KEPT, WORSE, Contrast, mean_of, preferred
from eval.quality_correlations import CORRELATIONS, Scores, difference, kendall, within_sources
from eval.quality_data import SHARES, WORST, Rated
from rag_mt.fingerprints import read_json

BASELINE = "chrF"
COMPARED = ("Pearson", "Spearman")
"""The correlations whose difference to the baseline gets an interval (resampled Kendall is too slow)."""

OPENING = """# Metrics against human scores

Made by `python -m eval.quality_report`; the commands are at the end. Correlations are those of single sentences, times
100. Every choice was made on dev parts and on the damage test below.

**No human scores exist here for translations into Finnish, Romanian and Turkish, and into Czech only a few direct
assessments without references.** No metric was checked against people in those languages; the damage test below is a
weaker check. All rated translations come from strong systems of 2019 to 2021, mostly far better than a 270 M model's:
how far these correlations carry over to such output is not known.
"""

HUMAN = f"""
MQM (`mqm`): penalties of newstest2021 translations, joined with the reference by source; rows whose translation is the
reference are dropped, and the sources are split ({", ".join(f"{100 * v:.0f} % {n}" for n, v in SHARES.items())}).
Metrics learn 1 - penalty / {WORST:.0f}, at least 0; correlations are with the penalty itself. Direct assessments
(`da`): z-scores, no reference.
"""

LAYERS = """
## BERTScore: the layer, chosen on the dev part

Kendall's tau of F1 by multilingual-e5-small, all layers (0 = embeddings), without rescaling, which changes no ranking
within a language.
"""

MQM = """
## With a reference: MQM, test part

`within` is Kendall's tau among the translations of one source, averaged: what counts when systems are compared on the
same sentences. The differences to chrF are in points, with 95 % intervals over {resamples} resamples of the sources.
"""

DA = """
## Without a reference: direct assessments, test parts

By the reference-free model, which is the only metric here that needs no reference.
"""

CONTRAST = f"""
## All directions: which of two damaged translations a metric prefers

{{sentences}} sentences of the dev set per direction. A reference that keeps {100 * KEPT:.0f} % of its words is compared
with one that keeps {100 * FEW:.0f} %, with the source copied, and with the reference of another sentence; the share of
sentences in which it scores higher, in percent. This shows gross failures only, and for COMET it is no independent
check: its training rows hold such damage of other sentences, in the language pairs named below.
"""


@dataclass(frozen=True)
class Layers:
    """BERTScore F1 of the dev tables in every layer: (rows, layers) by pair."""

    tables: Mapping[str, Sequence[Rated]]
    f1: Mapping[str, Scores]

    @cached_property
    def taus(self) -> dict[str, list[float]]:
        """Kendall's tau of each layer by pair."""
        return {
            pair: [kendall(column, _human(self.tables[pair])) for column in scores.T]
            for pair, scores in self.f1.items()
        }

    @property
    def means(self) -> list[float]:
        """The mean of each layer's taus over the pairs."""
        return [float(v) for v in np.mean(list(self.taus.values()), axis=0)]

    @property
    def best(self) -> int:
        """The layer with the highest mean."""
        return int(np.argmax(self.means))


@dataclass(frozen=True)
class Found:
    """All that the report tells: tables by pair, and the scores of each metric on them in the same order."""

    mqm: Mapping[str, Sequence[Rated]]
    mqm_scores: Mapping[str, Mapping[str, Scores]]
    da: Mapping[str, Sequence[Rated]]
    da_scores: Mapping[str, Scores]
    contrasts: Sequence[Contrast]
    contrast_scores: Mapping[str, Sequence[Scores]]
    layers: Layers
    rows: Mapping[str, int]
    models: Mapping[str, Path]
    limit: int | None


def report(found: Found) -> str:
    """The whole report."""
    sentences = len(found.contrasts[0].triples) // (1 + len(WORSE))
    resamples = MQM.format(resamples="1,000")
    parts = [OPENING, *_sizes(found), HUMAN, LAYERS, *_layers(found.layers), resamples, *_mqm(found), DA, *_da(found)]
    parts += [CONTRAST.format(sentences=sentences), *_contrast(found), *_training(found)]
    return "\n".join(parts).rstrip() + "\n"


def _human(rows: Sequence[Rated]) -> Scores:
    return np.array([row.human for row in rows], np.float64)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _head(*cells: str) -> list[str]:
    return [_row(*cells), "|" + "---|" * len(cells)]


def _points(value: float) -> str:
    return f"{100 * value:.1f}"


def _sizes(found: Found) -> Iterator[str]:
    """Rows that were used, by table."""
    kinds: dict[tuple[str, str], dict[str, int]] = {}
    for name, count in found.rows.items():
        kind, part, pair = name.split(".")
        kinds.setdefault((kind, pair), {})[part] = count
    yield from _head("human scores", "pair", "rows by part")
    for (kind, pair), parts in sorted(kinds.items()):
        yield _row(kind, pair, ", ".join(f"{part} {count:,}" for part, count in parts.items()))
    if found.limit:
        yield f"\nOf each dev and test table a fixed sample of at least {found.limit} rows was scored: all translations"
        yield "of some random sources."


def _layers(layers: Layers) -> Iterator[str]:
    yield from _head("layer", *map(str, range(len(layers.means))))
    for pair, taus in layers.taus.items():
        yield _row(pair, *map(_points, taus))
    cells = [f"**{_points(m)}**" if n == layers.best else _points(m) for n, m in enumerate(layers.means)]
    yield _row("mean", *cells)
    yield f"\nLayer {layers.best} is chosen."


def _mqm(found: Found) -> Iterator[str]:
    yield from _head(
        "metric", "pair", "rows", *CORRELATIONS, "within", *(f"{name} - {BASELINE}'s" for name in COMPARED)
    )
    for metric, scores in found.mqm_scores.items():
        for pair, rows in found.mqm.items():
            human, sources, baseline = _human(rows), [r.source for r in rows], found.mqm_scores[BASELINE][pair]
            cells = [_points(how(scores[pair], human)) for how in CORRELATIONS.values()]
            cells.append(_points(within_sources(scores[pair], human, sources)))
            for name in COMPARED:
                value, low, high = difference(scores[pair], baseline, human, sources, CORRELATIONS[name])
                cells.append("" if metric == BASELINE else f"{_points(value)} ({_points(low)} to {_points(high)})")
            yield _row(metric, pair, f"{len(rows):,}", *cells)


def _da(found: Found) -> Iterator[str]:
    yield from _head("pair, part", "rows", *CORRELATIONS)
    for name, rows in found.da.items():
        cells = [_points(how(found.da_scores[name], _human(rows))) for how in CORRELATIONS.values()]
        yield _row(name, f"{len(rows):,}", *cells)


def _contrast(found: Found) -> Iterator[str]:
    for n, worse in enumerate(WORSE):
        yield f"\nagainst: {worse}\n"
        yield from _head("metric", *(c.direction for c in found.contrasts), "mean")
        for metric, scores in found.contrast_scores.items():
            shares = [preferred(own) for own in scores]
            yield _row(metric, *(f"{s[n]:.0f}" for s in shares), f"{mean_of(shares)[n]:.1f}")


def _training(found: Found) -> Iterator[str]:
    """The commands, and what the COMET models were trained on."""
    yield "\n## The COMET models and the commands\n"
    yield from _head("model", "trained on", "epochs", "Kendall on dev", "minutes", "unbabel-comet")
    for name, folder in found.models.items():
        facts: dict[str, Any] = read_json(folder / TRAINING)
        rows = ", ".join(f"{pair} {count:,}" for pair, count in facts["rows"]["train"].items())
        yield _row(
            name,
            f"{facts['settings']['data']['table']}: {rows}; {facts['damaged']:,} damaged",
            str(len(facts["dev_scores"])),
            _points(facts["best_dev_kendall"]),
            f"{facts['seconds'] / 60:.0f}",
            facts["unbabel_comet"],
        )
    limit = f" --limit {found.limit}" if found.limit else ""
    yield "\n```bash"
    yield "make comet"
    yield "python -m eval.quality_data --data DIR --output QUALITY"
    yield from (read_json(folder / TRAINING)["command"] for folder in found.models.values())
    yield "python -m eval.quality_bertscore --data DIR --output eval/metrics/baselines/e5-small"
    yield (
        "python -m eval.quality_report --quality QUALITY --data DIR --reference MODEL --reference-free MODEL "
        f"--output reports/metrics.md{limit}"
    )
    yield "```"
