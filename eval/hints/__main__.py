"""Precision of hints against coverage, on aligned development data.

    python -m eval.hints --data DIR --pairs PAIRS --index INDEX --model NAME --fit NAME/confidence.json
    python -m eval.hints --data DIR --pairs PAIRS --index INDEX --model NAME

With --fit the confidence model is fitted on half A of the development sentences of all languages and written together
with --minimum, the least confidence of hints that are shown by default (chosen by what translations of development
sentences gain and lose, reports/cut-offs-dev.md). Without it half B is judged: tables by confidence and by coverage,
per language, for hints from the index, from the index with all references added (the true phrase is there), and from
the references of other sentences alone (a small index).

A hint is right if its content words have the same lemmas as the reference's words that are aligned with the phrase (by
eflomal, `XX-en.dev.jsonl`), strict if it is that very surface, partly right if at least half of its content lemmas are
among theirs. Other wordings count as wrong, so that precision is understated.

With --segmentation ngrams all spans of up to four words are asked for instead of the segmentation's phrases; their
confidence is fitted on half A in the same run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.hints.conditions import CONDITIONS, OTHERS, development, judged_answers
from eval.hints.verdicts import COVERAGES, LEVELS, RIGHT, Judged, Line, by_coverage, by_level, joined
from eval.report.blocks import markdown_table
from rag_mt.base.console import OK, Parser, add_model_options, note, positive, run, share
from rag_mt.base.defaults import DEFAULT_PHRASE_MODEL
from rag_mt.base.errors import UserError
from rag_mt.base.files import write_json
from rag_mt.base.languages import WMT16, base_code
from retrievers.ccpr.confidence import CHANCE, FEATURES, Confidence, fit_confidence
from retrievers.ccpr.model import open_phrase_encoder
from retrievers.ccpr.retriever import BestHits, CcprUnits
from retrievers.index.opening import open_index
from retrievers.index.search import Index
from retrievers.registry import confidence_for

Hints = Mapping[str, Mapping[str, tuple[BestHits, Judged]]]
"""All possible hints by language and condition."""


def evaluate(options: argparse.Namespace) -> int:
    """Fit or judge."""
    maker = CcprUnits(open_phrase_encoder(options.model or DEFAULT_PHRASE_MODEL, options.device, options.dtype))
    index = open_index(options.index, maker.settings)
    if options.fit:
        hints = collect(options, maker, index, "A")
        confidence = fitted(hints, options, index)
        confidence.save(options.fit)
        note(f"{options.fit}: fitted on {confidence.fitted['examples']} hits, minimum {confidence.minimum:g}")
        weights = sorted(zip(confidence.features, confidence.weights, strict=True), key=lambda pair: -abs(pair[1]))
        rows = [[name, f"{weight:+.3f}"] for name, weight in weights]
        print(markdown_table(["feature", "weight per standard deviation"], rows) + "\n")
        report(hints, confidence, options, "half A, on which the model was fitted")
        return OK
    stored = confidence_for(maker.encoder, index.folder) if options.segmentation == "learned" else None
    if stored is None:
        note("no confidence model is stored for this system: fitting one on half A")
        stored = fitted(collect(options, maker, index, "A"), options, index)
    report(collect(options, maker, index, "B"), stored, options, "half B")
    return OK


def collect(options: argparse.Namespace, maker: CcprUnits, index: Index, half: str) -> Hints:
    """All possible hints for the sentences of a half, judged, of all languages that fit to the index."""
    target = base_code(index.manifest.language)
    languages = options.languages.split(",") if options.languages else list(WMT16)
    if unknown := set(languages) - set(WMT16):
        raise UserError(f"there is no development data of {', '.join(sorted(unknown))}: choose {', '.join(WMT16)}")
    if target != "en" and target not in languages:
        raise UserError(f"index {index.folder} holds {target!r} text, which no development data translates into")
    hints = {}
    for code in languages if target == "en" else [target]:
        data = development(options.data, options.pairs, code, half, options.limit, target != "en")
        note(f"{code}: {len(data.sources)} sentences of half {half}")
        hints[code] = judged_answers(data, maker, options.segmentation, index, options.conditions)
    return hints


def fitted(hints: Hints, options: argparse.Namespace, index: Index) -> Confidence:
    """The confidence model of all hits that were judged."""
    features = [name for name in FEATURES if name != CHANCE or options.segmentation == "learned"]
    every = [pair for by_condition in hints.values() for pair in by_condition.values()]
    # Hits with other numbers are never shown: they teach nothing.
    teaching = ~np.concatenate([hits.unlike for hits, _ in every])
    table = {name: np.concatenate([hits.features[name] for hits, _ in every])[teaching] for name in features}
    right = np.concatenate([judged.verdicts >= RIGHT for _, judged in every])[teaching]
    about: dict[str, Any] = {
        "languages": sorted(hints),
        "half": "A",
        "sentences": sum(next(iter(own.values()))[1].sentences for own in hints.values()),
        "conditions": list(next(iter(hints.values()))),
        "examples": len(right),
        "right": round(float(right.mean()), 4),
        "penalty": options.penalty,
        "index": {"units": len(index), "language": index.manifest.language},
    }
    return fit_confidence(table, right, features, minimum=options.minimum, penalty=options.penalty, fitted=about)


def report(hints: Hints, confidence: Confidence, options: argparse.Namespace, data: str) -> None:
    """Print the tables, and write them as JSON if asked to."""
    name = f"ccpr, {options.segmentation} segmentation"
    print(f"# Hints of {name}, {options.model or 'its default model'}, {data}\n")
    print(f"Least confidence of hints that are shown by default: {confidence.minimum:g}\n")
    rows: list[dict[str, Any]] = []
    levels = sorted({*LEVELS, confidence.minimum})
    groups = {"all": list(hints)} | ({code: [code] for code in hints} if len(hints) > 1 else {})
    for condition in options.conditions:
        for group, codes in groups.items():
            parts, verdicts = zip(*(hints[code][condition] for code in codes), strict=True)
            judged = joined(verdicts)
            trust = np.concatenate([confidence.of(hits.features, hits.unlike) for hits in parts])
            scores = np.concatenate([hits.features["score"] for hits in parts])
            print(f"## {condition}, {group}: {judged.sentences} sentences, {len(judged.verdicts)} phrases asked\n")
            for kind, values, lines in (
                ("confidence", levels, by_level(judged, trust, levels)),
                ("content by confidence", COVERAGES, by_coverage(judged, trust, COVERAGES)),
                ("content by score", COVERAGES, by_coverage(judged, scores, COVERAGES)),
            ):
                known = {value: line for value, line in zip(values, lines, strict=True) if line is not None}
                print(table(kind, known))
                about = {"condition": condition, "language": group, "by": kind}
                rows += [about | {"value": value} | line for value, line in known.items()]
    if options.output:
        facts = {"system": name, "data": data, "minimum": confidence.minimum, "fitted": dict(confidence.fitted)}
        write_json(options.output, {**facts, "rows": rows})


def table(kind: str, lines: Mapping[float, Line]) -> str:
    """A Markdown table: one row per value of confidence or coverage."""
    names = ("sentences", "content", "strict", "right", "partly", "wrong")
    rows = []
    for value, line in lines.items():
        shares = [line[name] for name in names]
        cells = ["" if share is None else f"{share:.1%}" for share in shares]
        rows.append([f"{value:g}", f"{line['hints']:.2f}", *cells])
    return markdown_table([kind, "hints/sentence", *names], rows) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.hints",
        description=__doc__,
        examples=[
            "--data DATA --pairs PAIRS --index INDEX --model MODEL --fit MODEL/confidence.json",
            "--data DATA --pairs PAIRS --index INDEX --output hints.json",
        ],
    )
    add = parser.add_argument
    add("--data", required=True, type=Path, metavar="DIR", help="folder with dev/XX-en.tsv")
    pairs = "output of `python -m finetune.ccpr.pairs`: XX-en.dev.jsonl"
    add("--pairs", required=True, type=Path, metavar="DIR", help=pairs)
    add("--index", required=True, type=Path, metavar="DIR", help="index of text that is not development data")
    add("--model", metavar="NAME", help=f"phrase model (default: {DEFAULT_PHRASE_MODEL})")
    add("--segmentation", choices=["learned", "ngrams"], default="learned", help="what the phrases of a sentence are")
    add("--fit", type=Path, metavar="OUT.json", help="fit on half A and write the confidence model")
    add("--penalty", type=float, default=1.0, help="L2 penalty of the fit")
    add("--minimum", type=share, default=0.65, help="with --fit: see above")
    add("--languages", metavar="XX,...", help=f"languages (default: {','.join(WMT16)})")
    add("--limit", type=positive, metavar="N", help="sentences per language, spread over the half")
    names = f"where hints come from: {', '.join(CONDITIONS)} (default: all; {OTHERS!r} are a small index)"
    add("--conditions", nargs="+", choices=CONDITIONS, default=list(CONDITIONS), metavar="NAME", help=names)
    add("--output", type=Path, metavar="FILE.json", help="write the rows of all tables")
    add_model_options(parser)
    return run(evaluate, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
