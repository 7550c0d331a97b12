"""The suite `xpr` of `python -m eval.phrases`: phrase retrieval both ways, in the XPR paper's four settings."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

from eval.data.phrase_sets import QUICK, sample_phrases
from eval.report.blocks import as_markdown
from eval.xpr.baselines import SENTENCES
from eval.xpr.plans import SWEPT, UNTRAINED, WITHOUT_OTHERS, Plans
from eval.xpr.report import Report, as_blocks, write_report
from eval.xpr.suite import PARTS, Sets, SuiteSettings
from rag_mt.base.console import OK, note, positive
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.settings import shown_path

OPTIONS = (
    *("phrases", "models", "runs", "parts", "minutes", "encoder"),
    *("examples", "others", "dev_pairs", "source", "sweep"),
)
"""The options that only this suite has."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `OPTIONS`."""
    own = SuiteSettings(Path(), Path())
    group = parser.add_argument_group("suite xpr")
    add = group.add_argument
    add("--phrases", metavar="DIR", help="phrase sets, the output of `python -m finetune.xpr.data`")
    add(
        "--models",
        metavar="DIR",
        help="trained models: supervised.XX-en, multilingual, seed.N.XX-en, ablation.NAME.XX-en, layer.N.XX-en",
    )
    add("--runs", metavar="DIR", default="xpr-runs", help="results, to go on with (default: xpr-runs)")
    add(
        "--parts",
        metavar="NAME,...",
        default=",".join(PARTS),
        help=f"what to compute: {', '.join(PARTS)}, or none; results that are there are shown anyway (default: all)",
    )
    add("--minutes", type=positive, metavar="N", help="begin nothing after N minutes (default: no limit)")
    add("--encoder", default=DEFAULT_ENCODER, help=f"encoder without training (default: {DEFAULT_ENCODER})")
    add(
        "--examples",
        type=positive,
        default=own.examples,
        metavar="N",
        help=f"example sentences of a phrase (default: {own.examples})",
    )
    add(
        "--others",
        type=int,
        default=own.others,
        metavar="N",
        help=f"further candidates on each side (default: {own.others})",
    )
    add(
        "--dev-pairs",
        type=positive,
        default=own.dev_pairs,
        metavar="N",
        help=f"pairs in the sweeps (default: {own.dev_pairs})",
    )
    add("--source", default="", metavar="XX-en", help="set that zero-shot transfer comes from (default: the first)")
    add("--sweep", default="", metavar="XX-en", help="set of seeds and numbers of examples (default: the first)")


def suite_settings(options: argparse.Namespace) -> SuiteSettings:
    """The settings that the options ask for; raises UserError for what cannot be."""
    quick = not options.phrases
    if quick:
        note("no --phrases DIR is given: this is the quick form on the sample corpus, which measures nothing")
    parts = tuple(options.parts.split(",")) if options.parts != "none" else ()
    if unknown := set(parts) - set(PARTS):
        raise UserError(f"there is no part {', '.join(sorted(unknown))}: choose among {', '.join(PARTS)}, or none")
    if options.others < 0:
        raise UserError(f"--others {options.others} is below 0: give how many further candidates to search")
    return SuiteSettings(
        phrases=sample_phrases(options.device, options.dtype) if quick else Path(options.phrases),
        quick=quick,
        runs=Path(options.runs),
        models=Path(options.models) if options.models else None,
        data=Path(options.data) if options.data else None,
        languages=tuple(options.languages.split(",")) if options.languages else (),
        encoder=options.encoder,
        examples=options.examples,
        others=options.others,
        dev_pairs=options.dev_pairs,
        source=options.source,
        sweep=options.sweep,
        parts=parts,
        minutes=options.minutes or math.inf,
        device=options.device,
        dtype=options.dtype,
    )


def evaluate_xpr(options: argparse.Namespace) -> int:
    """Compute what is not there yet, print the report and write it."""
    settings = suite_settings(options)
    sets = Sets(settings)
    if settings.data is None:
        note("without --data DIR there are no word vectors: rows of CLWE that were not computed earlier are missing")
    plans = Plans(sets)
    models = {name: plans.models.facts(name, sets.every) for name in plans.known_models()}
    swept = sets.rows(plans.by_layer())
    chosen = plans.choose_layers(swept)
    tables = [
        *plans.by_trained_layer(),
        *plans.four_settings(),
        *plans.matrix(),
        *plans.seeds(),
        *plans.ablations(),
        *plans.by_count(),
    ]
    rows = (*swept, *sets.rows(tables))
    notes = tuple(_notes(sets, plans, chosen))
    report = Report(rows, sets.names, notes, plans.layers, sets.source, models)
    note(f"{sets.cells.computed} results were computed; all are in {settings.runs}")
    print(as_markdown(list(as_blocks(report, None))), end="")
    for name in options.output:
        write_report(report, Path(name))
    return OK


def _notes(sets: Sets, plans: Plans, chosen: bool) -> Iterator[str]:
    """What a reader must know."""
    own = sets.settings
    if own.quick:
        yield QUICK
    for name in sets.names:
        task = sets.task(name, "test", own.others)
        counts = " and ".join(
            f"{len(side)} of {language}"
            for side, language in zip(task.candidates, (s.language for s in sets.every[name].sides), strict=True)
        )
        train, dev = (len(sets.every[name].pairs(split)) for split in ("train", "dev"))
        kinds = f"{task.several.sum()} with several words, {len(set(task.concepts))} concepts"
        pairs = f"{len(task.pairs)} test pairs ({kinds})"
        several = sum(len(right) > 1 for side in task.answers for right in side)
        yield (
            f"{name}: {pairs}, searched among {counts}; {several} of {2 * len(task.pairs)} queries have several right "
            f"answers; {train} training and {dev} development pairs"
        )
    yield (
        "right is every translation that the lexicon has of a phrase (the paper: that of the pair alone); of the pairs "
        "that could be tested those with few other translations were taken first"
    )
    yield (
        f"XPR reads at most {own.examples} example sentences of a phrase (the paper: 32), of queries as of candidates; "
        f"in the matrix, with other seeds and in ablations at most {min(WITHOUT_OTHERS, own.examples)}"
    )
    yield f"CLWE: word vectors of each language from {SENTENCES:,} different sentences of its training text at most"
    told = "; ".join(f"{kind}: {plans.layers[kind]}" for kind in SWEPT)
    why = "best on development pairs" if chosen else "the encoder's usual one where the sweep was not run"
    yield f"encoder {shown_path(own.encoder)}; layers ({why}): {told}"
    if without := [name for name in sets.names if name not in sets.with_dev]:
        yield f"without development pairs, so that nothing is chosen on them: {', '.join(without)}"
    yield f"layers and numbers of examples: {own.dev_pairs} development pairs, searched among their own phrases"
    if own.encoder == DEFAULT_ENCODER:
        yield (
            f"this encoder has seen parallel text in its own training: its row ({UNTRAINED}) is called untrained, not "
            "unsupervised, and compared with the paper's XLM-R as a finding"
        )
