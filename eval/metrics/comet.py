"""COMET (Rei et al. 2020) as the sentence scores that `python -m eval.comet.score` has written.

unbabel-comet cannot live beside this program's libraries, so it runs in an environment of its own (`make comet`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.metrics.formulas import Rows
from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, read_json, settings_hash

Triple = tuple[str, str, str]
"""Source, translation and reference: a score belongs to its three texts, whatever the order of a file."""
STANDARD = "wmt22-comet-da"
"""The model whose scores are called COMET alone, as papers do; those of others have the model's name with it."""
FACTS = ("model", "weights", "references", "version")
"""What a file of scores tells of its model."""


class Comet:
    """The COMET scores of some files in percent (a Metric); `name` tells of a model other than STANDARD.

    Raises UserError for unreadable files and for files of several models.
    """

    formula = "mean"

    def __init__(self, files: Sequence[Path]) -> None:
        if not files:
            raise UserError(
                "the metric comet needs scores of `python -m eval.comet.score`: give them with --comet FILE"
            )
        self._scores: dict[Triple, float] = {}
        models = set()
        for path in files:
            facts, scores = read_scores(path)
            models.add("{model}|weights:{weights}|version:{version}".format(**facts))
            self._scores |= scores
        model, *others = sorted(models)
        if others:
            several = ", ".join([model, *others])
            raise UserError(f"the files of COMET scores are of several models ({several}): give those of one")
        short = model.partition("|")[0].rpartition("/")[2].rpartition("--")[2]  # hub caches: models--OWNER--NAME
        self.name = "COMET" if short == STANDARD else f"COMET ({short})"
        self.signature = f"model:{model}|scores:{settings_hash(sorted(file_sha256(path) for path in files))}"

    def statistics(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> Rows:
        """Score and 1, (sentences, 2); raises UserError for a translation that the files do not have."""
        triples = list(zip(sources, hypotheses, references, strict=True))
        if lacking := [translation for _, translation, _ in (t for t in triples if t not in self._scores)]:
            raise UserError(
                f"the COMET scores lack {len(lacking)} of {len(triples)} outputs (such as {lacking[0][:40]!r}): "
                "score them with `python -m eval.comet.score` and give its file with --comet"
            )
        return np.array([(100 * self._scores[t], 1) for t in triples], np.float64).reshape(-1, 2)


def read_scores(path: Path) -> tuple[dict[str, Any], dict[Triple, float]]:
    """The FACTS and the scores in a file of `python -m eval.comet.score`; raises UserError for another file."""
    try:
        content = read_json(path)
        rows = (row for rows in content["scores"].values() for row in rows)
        scores = {(row["src"], row["mt"], row["ref"]): float(row["COMET"]) for row in rows}
        return {name: content[name] for name in FACTS}, scores
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} holds no COMET scores ({error!r}): expected a file of `python -m eval.comet.score`"
        ) from None
