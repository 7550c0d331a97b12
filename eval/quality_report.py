"""Compare metrics with human scores and write the tables.

    python -m eval.quality_report --quality QUALITY --data DIR --reference MODEL --reference-free MODEL --output FILE.md

QUALITY is a folder of `python -m eval.quality_data`, each MODEL one of `python -m eval.comet_train`. The layer of
BERTScore is chosen on the dev part of the MQM rows; all other numbers are of test parts, computed once and kept in the
folder --scores. DIR/dev/XX-en.tsv gives sentences of the languages without human scores, for a weaker check.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval.comet_checkpoint import HEAD
from eval.metrics.comet import Triple
from eval.quality_bertscore import layer_f1
from eval.quality_contrast import Contrast, contrast
from eval.quality_correlations import Scores
from eval.quality_data import Rated, Tables, read_tables
from eval.quality_scores import Scorer, comet_scorer, harness_scorer, kept
from eval.quality_tables import Found, Layers, report
from eval.suites import open_suite
from rag_mt.console import OK, Parser, note, positive, run
from rag_mt.defaults import DEFAULT_ENCODER
from rag_mt.errors import UserError
from rag_mt.fingerprints import file_sha256
from rag_mt.models import load_encoder
from rag_mt.paths import whole_file

SEED = 1
REFERENCE, REFERENCE_FREE = "COMET, reference-based", "COMET, reference-free"


@dataclass(frozen=True)
class Judge:
    """A metric whose scores are kept in a folder; `key` changes whenever they would."""

    name: str
    key: str
    scorer: Scorer
    folder: Path
    by_language: bool = True

    def scores(self, parts: Sequence[tuple[Sequence[Triple], str]]) -> list[Scores]:
        """The scores of each part (triples, target language)."""
        named = [(triples, language if self.by_language else "") for triples, language in parts]
        return kept(self.folder, f"{self.name} {self.key}", self.scorer, named)

    def of_tables(self, tables: Mapping[str, Sequence[Rated]]) -> dict[str, Scores]:
        """The scores of tables by language pair."""
        parts = [(triples_of(rows), pair.partition("-")[2]) for pair, rows in tables.items()]
        return dict(zip(tables, self.scores(parts), strict=True))


def triples_of(rows: Sequence[Rated]) -> list[Triple]:
    """What a metric reads of rated translations."""
    return [(r.source, r.translation, r.reference) for r in rows]


def compare(options: argparse.Namespace) -> int:
    """Score, correlate and write the report; returns the exit code."""
    kept_in = Path(options.scores)
    models = {REFERENCE: Path(options.reference), REFERENCE_FREE: Path(options.reference_free)}
    whole = read_tables(Path(options.quality))
    tables = {key: sample(rows, options.limit) for key, rows in whole.items()}
    layers = _layers(tables, kept_in, not options.quiet)
    mqm = {pair: rows for (kind, part, pair), rows in tables.items() if (kind, part) == ("mqm", "test")}
    da = {f"{pair}, {part}": rows for (kind, part, pair), rows in tables.items() if kind == "da" and "test" in part}
    if not mqm or not da:
        raise UserError(f"{options.quality} lacks test tables of mqm or da: make it with `python -m eval.quality_data`")
    contrasts = _contrasts(Path(options.data), options.sentences)
    metrics = [
        Judge("chrF", "chrF", harness_scorer("chrf"), kept_in),
        Judge("chrF++", "chrF++", harness_scorer("chrf++"), kept_in),
        Judge(f"BERTScore, layer {layers.best}", "BERTScore", harness_scorer("bertscore", layers.best), kept_in),
    ]
    comets = [
        Judge(name, file_sha256(model / HEAD), comet_scorer(model, options.quiet), kept_in, by_language=False)
        for name, model in models.items()
    ]
    found = Found(
        mqm=mqm,
        mqm_scores={own.name: own.of_tables(mqm) for own in (*metrics, *comets)},
        da=da,
        da_scores=comets[-1].of_tables(da),
        contrasts=contrasts,
        contrast_scores={
            own.name: own.scores([(c.triples, c.target) for c in contrasts]) for own in (*metrics, *comets)
        },
        layers=layers,
        rows={".".join(key): len(rows) for key, rows in whole.items()},
        models=models,
        limit=options.limit,
    )
    with whole_file(Path(options.output)) as new:
        new.write_text(report(found), encoding="utf-8")
    note(f"{options.output} is written; BERTScore's best layer on the dev part is {layers.best}")
    return OK


def sample(rows: Sequence[Rated], limit: int | None) -> list[Rated]:
    """All translations of so many seeded random sources that there are `limit` of them, or a few more."""
    sources = list(dict.fromkeys(row.source for row in rows))
    random.Random(SEED).shuffle(sources)
    counts = Counter(row.source for row in rows)
    before = np.cumsum([0, *(counts[source] for source in sources)])
    chosen = {s for s, count in zip(sources, before[:-1], strict=True) if limit is None or count < limit}
    return [row for row in rows if row.source in chosen]


def _layers(tables: Tables, folder: Path, show: bool) -> Layers:
    """BERTScore by every layer on the dev part of the MQM rows."""
    dev = {pair: rows for (kind, part, pair), rows in tables.items() if (kind, part) == ("mqm", "dev")}
    triples = [triple for rows in dev.values() for triple in triples_of(rows)]

    def scores(triples: Sequence[Triple], target: str) -> Scores:
        return layer_f1(load_encoder(DEFAULT_ENCODER), [(t, r) for _, t, r in triples], show).ravel()

    made = kept(folder, "BERTScore of all layers", scores, [(triples, "")])[0].reshape(len(triples), -1)
    ends = np.cumsum([len(rows) for rows in dev.values()])[:-1]
    return Layers(dev, dict(zip(dev, np.split(made, ends), strict=True)))


def _contrasts(data: Path, sentences: int) -> list[Contrast]:
    """The contrasts of the 12 directions of the dev suite."""
    suite = open_suite("dev", data, None, None, None)
    return [contrast(suite.part(*direction, sentences, 1)) for direction in suite.chosen(None)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.quality_report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quality", required=True, metavar="QUALITY", help="tables of `python -m eval.quality_data`")
    add("--data", required=True, metavar="DIR", help="folder with dev/XX-en.tsv")
    add("--reference", required=True, metavar="MODEL", help="reference-based COMET model")
    add("--reference-free", required=True, metavar="MODEL", help="reference-free COMET model")
    add("--output", required=True, metavar="FILE.md", help="the report")
    add("--scores", default="runs/quality", metavar="DIR", help="folder that keeps scores (default: runs/quality)")
    add("--limit", type=positive, metavar="N", help="a sample of N rows of each table (default: all)")
    add("--sentences", type=positive, default=30, metavar="N", help="of the weaker check (default: 30 per direction)")
    add("--quiet", action="store_true", help="no progress bars")
    return run(compare, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
