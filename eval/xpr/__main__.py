"""The suite `xpr` of `python -m eval.phrases`: phrase retrieval both ways, in the XPR paper's four settings."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from eval.data.sample_phrases import QUICK
from eval.report.blocks import as_markdown
from eval.xpr.baselines import SENTENCES
from eval.xpr.plans import SWEPT, UNTRAINED, WITHOUT_OTHERS, Plans
from eval.xpr.report import Report, as_blocks, write_report
from eval.xpr.suite import PARTS, Sets
from rag_mt.base.console import OK, note, positive
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.settings import shown_path

OPTIONS = ("phrases", "models", "runs", "parts", "minutes", "encoder", "examples", "others", "dev_pairs")
"""The options that only this suite has."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `OPTIONS`."""
    add = parser.add_argument_group("suite xpr").add_argument
    add("--phrases", metavar="DIR", help="phrase sets, the output of `python -m finetune.xpr.data`")
    names = "supervised.XX-en, multilingual, seed.N.XX-en, ablation.NAME.XX-en, layer.N.XX-en"
    add("--models", metavar="DIR", help=f"trained models: {names}")
    add("--runs", metavar="DIR", default="xpr-runs", help="results, to go on with (default: xpr-runs)")
    parts_help = f"what to compute: {', '.join(PARTS)}, or none; results that are there are shown anyway (default: all)"
    add("--parts", metavar="NAME,...", default=",".join(PARTS), help=parts_help)
    add("--minutes", type=positive, metavar="N", help="begin nothing after N minutes (default: no limit)")
    add("--encoder", default=DEFAULT_ENCODER, help=f"encoder without training (default: {DEFAULT_ENCODER})")
    for name, kind, default, what in (
        ("examples", positive, 8, "example sentences of a phrase"),
        ("others", int, 20_000, "further candidates on each side"),
        ("dev-pairs", positive, 500, "pairs in the sweeps"),
    ):
        add(f"--{name}", type=kind, default=default, metavar="N", help=f"{what} (default: {default})")


def evaluate_xpr(options: argparse.Namespace) -> int:
    """Compute what is not there yet, print the report and write it."""
    if not options.phrases:
        note("no --phrases DIR is given: this is the quick form on the sample corpus, which measures nothing")
    sets = Sets(options)
    if not options.data:
        note("without --data DIR there are no word vectors: rows of CLWE that were not computed earlier are missing")
    plans = Plans(sets)
    models = {name: plans.models.facts(name, sets.every) for name in plans.known_models()}
    swept = sets.rows(plans.by_layer())
    chosen = plans.choose_layers(swept)
    rows = (*swept, *sets.rows(plans.tables()))
    report = Report(rows, sets.names, tuple(_notes(sets, plans, chosen)), plans.layers, models)
    note(f"{sets.cells.computed} results were computed; all are in {Path(options.runs)}")
    print(as_markdown(list(as_blocks(report, None))), end="")
    for name in options.output:
        write_report(report, Path(name))
    return OK


def _notes(sets: Sets, plans: Plans, chosen: bool) -> Iterator[str]:
    """What a reader must know."""
    options = sets.options
    if not options.phrases:
        yield QUICK
    for name in sets.names:
        task, examples = sets.task(name, "test", options.others), sets.every[name]
        counts = " and ".join(
            f"{len(candidates)} of {side.language}"
            for candidates, side in zip(task.candidates, examples.sides, strict=True)
        )
        kinds = f"{task.several.sum()} with several words, {len(set(task.concepts))} concepts"
        several = sum(len(right) > 1 for side in task.answers for right in side)
        yield (
            f"{name}: {len(task.pairs)} test pairs ({kinds}), searched among {counts}; {several} of "
            f"{2 * len(task.pairs)} queries have several right answers; {len(examples.pairs('train'))} training and "
            f"{len(examples.pairs('dev'))} development pairs"
        )
    yield (
        "right is every translation that the lexicon has of a phrase (the paper: that of the pair alone); of the pairs "
        "that could be tested those with few other translations were taken first"
    )
    yield (
        f"XPR reads at most {options.examples} example sentences of a phrase (the paper: 32), of queries as of "
        "candidates; in the matrix, with other seeds and in ablations at most "
        f"{min(WITHOUT_OTHERS, options.examples)}"
    )
    yield f"CLWE: word vectors of each language from {SENTENCES:,} different sentences of its training text at most"
    layers = "; ".join(f"{kind}: {plans.layers[kind]}" for kind in SWEPT)
    why = "best on development pairs" if chosen else "the encoder's usual one where the sweep was not run"
    yield f"encoder {shown_path(options.encoder)}; layers ({why}): {layers}"
    if without := [name for name in sets.names if name not in sets.with_dev]:
        yield f"without development pairs, so that nothing is chosen on them: {', '.join(without)}"
    yield f"layers and numbers of examples: {options.dev_pairs} development pairs, searched among their own phrases"
    if options.encoder == DEFAULT_ENCODER:
        yield (
            f"this encoder has seen parallel text in its own training: its row ({UNTRAINED}) is called untrained, not "
            "unsupervised, and compared with the paper's XLM-R as a finding"
        )
