"""The score from which a pair is taken to be a translation, per encoder and language, and where that comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rag_mt.base.fingerprints import read_toml
from rag_mt.base.languages import base_code

FILE = Path(__file__).with_name("thresholds.toml")


@dataclass(frozen=True)
class Threshold:
    """A threshold of the ratio margin over `neighbours` neighbours; `origin` says in words what it was tuned on."""

    score: float
    neighbours: int
    origin: str


UNTUNED = Threshold(
    1.04, 4, "the value of WikiMatrix for LASER (Schwenk et al. 2021), not tuned for this encoder: look at the pairs"
)
"""Where nothing is known of an encoder. A threshold belongs to an encoder: this one is a place to begin at."""


def known_threshold(encoder: str, source: str, target: str, file: Path = FILE) -> Threshold:
    """The threshold for an encoder: that of the language that is paired with English, else its strictest one; UNTUNED
    for an encoder that has none."""
    own = read_toml(file, "table of thresholds", file.name).get(encoder)
    if own is None:
        return UNTUNED
    scores: dict[str, float] = own["scores"]
    codes = (base_code(source), base_code(target))
    code = next((c for c in codes if c in scores), None) if "en" in codes else None
    if code is None:
        code = max(scores, key=lambda c: scores[c])
    return Threshold(scores[code], own["neighbours"], f"tuned on {code}-en: {own['origin']}")
