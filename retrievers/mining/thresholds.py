"""The score from which a pair is taken to be a translation, per encoder and language, and where that comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rag_mt.errors import UserError
from rag_mt.fingerprints import read_toml
from rag_mt.languages import base_code

FILE = Path(__file__).with_name("thresholds.toml")


@dataclass(frozen=True)
class Threshold:
    """A threshold of the ratio margin over `neighbours` neighbours; `origin` says in words what it was tuned on."""

    score: float
    neighbours: int
    origin: str


def known_threshold(encoder: str, source: str, target: str) -> Threshold:
    """The threshold for an encoder: that of the language that is paired with English, else its strictest one.

    Raises UserError for an encoder that has none.
    """
    table = read_toml(FILE, "table of thresholds", FILE.name)
    if encoder not in table:
        raise UserError(
            f"no threshold is known for encoder {encoder}: give --threshold (0 keeps every pair, with its score), or "
            f"tune one with `python -m eval.bitext --models {encoder}`"
        )
    own = table[encoder]
    scores: dict[str, float] = own["scores"]
    code = next((c for c in (base_code(source), base_code(target)) if c in scores), None)
    if code is None or "en" not in (base_code(source), base_code(target)):
        code = max(scores, key=lambda c: scores[c])
    return Threshold(scores[code], own["neighbours"], f"tuned on {code}-en: {own['origin']}")
