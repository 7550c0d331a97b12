"""Damaged translations, which people were never shown: an estimator that has seen translations by machines alone takes
a copy of the source, or the half of a translation, for a good one.

What people would give them is set, not measured: nothing for what says nothing of the source, a share for what leaves a
share out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eval.data.judgements import Judged

LEAST_WORDS = 6
"""Words of a translation that is cut or mixed."""
NOTHING, LITTLE = 0.0, 15.0
MOST = 100.0


def of_other_sentence(row: Judged, other: Judged, rng: np.random.Generator) -> tuple[str, float]:
    """The translation of another sentence."""
    return other.target, NOTHING


def copied(row: Judged, other: Judged, rng: np.random.Generator) -> tuple[str, float]:
    """The source itself."""
    return row.source, NOTHING


def cut(row: Judged, other: Judged, rng: np.random.Generator) -> tuple[str, float]:
    """The beginning or the end of the translation, of which half to four fifths are left out."""
    words = row.target.split()
    left = max(1, round(len(words) * rng.uniform(0.2, 0.5)))
    text = " ".join(words[:left] if rng.random() < 0.5 else words[-left:])
    return text, MOST * left / len(words)


def mixed(row: Judged, other: Judged, rng: np.random.Generator) -> tuple[str, float]:
    """The words of the translation in random order."""
    return " ".join(rng.permutation(row.target.split())), LITTLE


def repeated(row: Judged, other: Judged, rng: np.random.Generator) -> tuple[str, float]:
    """The beginning of the translation, again and again."""
    words = row.target.split()
    return " ".join(words[: rng.integers(2, 5)] * 6), LITTLE


DAMAGES: dict[str, Callable[[Judged, Judged, np.random.Generator], tuple[str, float]]] = {
    "other sentence": of_other_sentence,
    "copied": copied,
    "cut": cut,
    "mixed": mixed,
    "repeated": repeated,
}


def damaged(row: Judged, other: Judged, kind: str, rng: np.random.Generator) -> Judged | None:
    """A translation with damage of a kind, and what it is worth from 0 to 100; None where it has too few words, or says
    the same afterwards."""
    if kind not in ("other sentence", "copied") and len(row.target.split()) < LEAST_WORDS:
        return None
    text, score = DAMAGES[kind](row, other, rng)
    return None if text == row.target or other.source == row.source else Judged(row.source, text, score, score)


def with_damage(rows: Sequence[Judged], kinds: Sequence[str], rng: np.random.Generator) -> list[tuple[Judged, Judged]]:
    """Translations, each with itself damaged, by the kinds in turn; without those that cannot be damaged so."""
    others = [*rows[1:], *rows[:1]]
    made = [
        (row, damaged(row, other, kinds[number % len(kinds)], rng))
        for number, (row, other) in enumerate(zip(rows, others, strict=True))
    ]
    return [(row, broken) for row, broken in made if broken is not None]
