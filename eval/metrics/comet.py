"""COMET (Rei et al. 2020) as sentence scores that another program has written.

unbabel-comet cannot live beside this program's libraries, so it runs in an environment of its own (`make comet`): what
`python -m eval.comet.score` writes is read here, as are the files of its own command `comet-score --to_json FILE` and
TSV files with the columns source, translation, reference and score.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.metrics.formulas import Rows
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import file_sha256, read_json, settings_hash

Triple = tuple[str, str, str]
"""Source, translation and reference: a score belongs to its three texts, whatever the order of a file."""


class Comet:
    """The COMET scores, in percent, of files by a `model`, which the signature names (a Metric).

    The model "" is the one that the files name. Raises UserError for unreadable files, for files of several models and
    where the model is not known.
    """

    name = "COMET"
    formula = "mean"

    def __init__(self, files: Sequence[Path], model: str) -> None:
        if not files:
            raise UserError(
                "the metric comet needs scores of `python -m eval.comet.score`: give them with --comet FILE"
            )
        self._scores: dict[Triple, float] = {}
        models = set()
        for path in files:
            scores, facts = read_scores(path)
            self._scores |= scores
            models.add(_named_model(path, facts))
        if len(models - {""}) > 1:
            several = ", ".join(sorted(models - {""}))
            raise UserError(f"the files of COMET scores are of several models ({several}): give those of one")
        if not model and "" in models:
            raise UserError("the files of COMET scores name no model: name it with --comet-model NAME")
        digest = settings_hash(sorted(file_sha256(path) for path in files))
        self.signature = f"model:{model or models.pop()}|scores:{digest}"

    def statistics(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> Rows:
        """Score and 1, (sentences, 2); raises UserError for a translation that the files do not have.

        A score without a reference is that of a model that reads none, whatever the reference here.
        """
        triples = list(zip(sources, hypotheses, references, strict=True))
        scores = [self._scores.get(triple, self._scores.get((*triple[:2], ""))) for triple in triples]
        lacking = [translation for (_, translation, _), value in zip(triples, scores, strict=True) if value is None]
        if lacking:
            raise UserError(
                f"the COMET scores lack {len(lacking)} of {len(triples)} outputs (such as {lacking[0][:40]!r}): "
                "score them with `python -m eval.comet.score` and give its file with --comet"
            )
        return np.array([(100 * value, 1) for value in scores if value is not None], np.float64).reshape(-1, 2)


def read_scores(path: Path) -> tuple[dict[Triple, float], dict[str, Any]]:
    """The scores in a file by their texts (the reference is empty where there is none), and what else a file of
    `python -m eval.comet.score` says; raises UserError for another file."""
    try:
        if path.suffix != ".json":
            lines = filter(None, path.read_text(encoding="utf-8").split("\n"))
            table = [line.rstrip("\r").split("\t") for line in lines]
            return {(source, text, reference): float(score) for source, text, reference, score in table}, {}
        content = read_json(path)
        facts = dict(content) if isinstance(content.get("model"), str) else {}
        systems = facts.pop("scores") if facts else content
        rows = [row for system in systems.values() for row in system]
        return {(row["src"], row["mt"], row.get("ref", "")): float(row["COMET"]) for row in rows}, facts
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} holds no COMET scores ({error!r}): expected the JSON of `python -m eval.comet.score` or "
            "`comet-score --to_json`, or a TSV file of source, translation, reference and score"
        ) from None


def _named_model(path: Path, facts: dict[str, Any]) -> str:
    """The model, its weights and the version of unbabel-comet that a file names, or "" if it names none."""
    if not facts:
        return ""
    if lacking := [name for name in ("weights", "version") if name not in facts]:
        raise UserError(
            f"{path} does not name the {' and '.join(lacking)} of its model: make it again with "
            "`python -m eval.comet.score`"
        )
    return f"{facts['model']}|weights:{facts['weights']}|version:{facts['version']}"
