"""COMET (Rei et al. 2020) as sentence scores that another program has written.

unbabel-comet cannot live beside this program's libraries, so it runs in an environment of its own (`make comet`): what
`python -m eval.comet.score` writes is read here, as are the files of its own command `comet-score --to_json FILE` and
TSV files with the columns source, translation, reference and score. A score belongs to its three texts, whatever the
order of a file. In percent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import file_sha256, read_json, settings_hash

Triple = tuple[str, str, str]


class Comet:
    """COMET scores by source, translation and reference (a Metric)."""

    name = "COMET"
    formula = "mean"

    def __init__(self, scores: dict[Triple, float], signature: str) -> None:
        self._scores, self.signature = scores, signature

    def statistics(
        self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> NDArray[np.float64]:
        """Score and 1, (sentences, 2); raises UserError for a translation that the files do not have.

        A score without a reference is that of a model that reads none, whatever the reference here.
        """
        whole = list(zip(sources, hypotheses, references, strict=True))
        triples = [t if t in self._scores else (t[0], t[1], "") for t in whole]
        missing = [t for t in triples if t not in self._scores]
        if missing:
            raise UserError(
                f"the COMET scores lack {len(missing)} of {len(triples)} outputs (such as {missing[0][1][:40]!r}): "
                "score them with `python -m eval.comet.score` and give its file with --comet"
            )
        return np.array([(100 * self._scores[t], 1) for t in triples], np.float64).reshape(-1, 2)


def open_comet(files: Sequence[Path], model: str) -> Comet:
    """The scores of some files by `model`, which the signature names; "" is the one that the files name.

    Raises UserError for unreadable files, and where the model is not known.
    """
    if not files:
        raise UserError("the metric comet needs scores of `python -m eval.comet.score`: give them with --comet FILE")
    scores: dict[Triple, float] = {}
    named = set()
    for path in files:
        scores.update(read_scores(path))
        named.add(_model_of(path))
    if len(named - {None}) > 1:
        several = ", ".join(sorted(filter(None, named)))
        raise UserError(f"the files of COMET scores are of several models ({several}): give those of one")
    if not model and None in named:
        raise UserError("the files of COMET scores name no model: name it with --comet-model NAME")
    digest = settings_hash(sorted(file_sha256(path) for path in files))
    return Comet(scores, f"model:{model or named.pop()}|scores:{digest}")


def read_scores(path: Path) -> dict[Triple, float]:
    """The scores in a file, by source, translation and reference (empty where there is none)."""
    try:
        rows = _json_rows(path) if path.suffix == ".json" else _tsv_rows(path)
        return dict(rows)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} holds no COMET scores ({error!r}): expected the JSON of `python -m eval.comet.score` or "
            "`comet-score --to_json`, or a TSV file of source, translation, reference and score"
        ) from None


def _model_of(path: Path) -> str | None:
    """The model, its weights and the version of unbabel-comet that a file names."""
    found = read_json(path) if path.suffix == ".json" else {}
    if not _named(found):
        return None
    lacking = [name for name in ("weights", "version") if name not in found]
    if lacking:
        raise UserError(
            f"{path} does not name the {' and '.join(lacking)} of its model: make it again with "
            "`python -m eval.comet.score`"
        )
    return f"{found['model']}|weights:{found['weights']}|version:{found['version']}"


def _named(found: Mapping[str, Any]) -> bool:
    """Whether a file is one of `python -m eval.comet.score`: its rows are a step further in."""
    return isinstance(found.get("model"), str)


def _json_rows(path: Path) -> Iterator[tuple[Triple, float]]:
    found = read_json(path)
    for rows in (found["scores"] if _named(found) else found).values():
        for row in rows:
            yield (row["src"], row["mt"], row.get("ref", "")), float(row["COMET"])


def _tsv_rows(path: Path) -> Iterator[tuple[Triple, float]]:
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line:
            source, translation, reference, score = line.rstrip("\r").split("\t")
            yield (source, translation, reference), float(score)
