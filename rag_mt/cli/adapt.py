"""Tune a language model on the text of an index: `rag-mt adapt INDEX --src en`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rag_mt.base.cluster import cluster_of
from rag_mt.base.console import (
    INTERRUPTED,
    OK,
    PARTLY,
    add_cluster_options,
    add_engine_option,
    add_model_options,
    note,
    positive,
)
from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_LLM
from rag_mt.base.errors import UserError

DESCRIPTION = """Tune a language model on the language and the terms of an index, from its text alone.

Sentences of the index are translated back into the source language, and the adapter of that direction is trained
further on the pairs, with hints of the index. A part of the text is held out. If its translation gets better, the
adapter is kept beside the index with a report, and `rag-mt translate --index` uses it from then on; if not, nothing is
kept. How long it takes is told before it begins, for this machine alone; what is interrupted goes on with the same
command."""
EXAMPLES = ("my-index --src en", "my-index --src en --minutes 30 --pairs memory.tmx")


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options of the command."""
    add = parser.add_argument
    add("index", metavar="INDEX", help="folder of an index (`rag-mt index build` makes one)")
    add("--src", required=True, metavar="LANG", help="language that will be translated from")
    add("--minutes", type=positive, default=90, metavar="N", help="time to plan for")
    add(
        "--sentences", type=positive, metavar="N", help="most sentences of the index to use (default: what time allows)"
    )
    pairs_help = (
        "your own translations into the language of the index, TMX or TSV, to learn from too; of 400 and more some are "
        "what the check is on"
    )
    add("--pairs", action="append", default=[], metavar="FILE", help=pairs_help)
    replay_help = "general translations, TMX or TSV, so that other text does not get worse (default: the sample corpus)"
    add("--replay", action="append", default=[], metavar="FILE", help=replay_help)
    add("--llm", default=DEFAULT_LLM, metavar="ID", help="language model to tune: a hub id, a folder or embedded:NAME")
    adapter_help = "adapter to go on from, or none (default: ours)"
    add("--adapter", default=DEFAULT_ADAPTER, metavar="DIR", help=adapter_help)
    add("--back-llm", default=DEFAULT_LLM, metavar="ID", help="language model that translates back")
    add("--back-adapter", default=DEFAULT_ADAPTER, metavar="DIR", help="its adapter, or none (default: ours)")
    add("--config", default="adapt", metavar="NAME|FILE", help="settings")
    add("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    add("--replace", action="store_true", help="tune another adapter in the place of an existing one")
    add("--restart", action="store_true", help="forget what an interrupted run had finished")
    add_cluster_options(parser)
    add_model_options(parser)
    add_engine_option(parser)


def adapt(options: argparse.Namespace) -> int:
    """`rag-mt adapt`: an adapter for an index, kept if it is better."""
    try:
        from finetune.adapt.config import AdaptConfig
        from finetune.adapt.request import Request
        from finetune.adapt.run import adapt as adapted
        from finetune.training.settings import read_config
    except ModuleNotFoundError as error:
        raise UserError(
            f"`rag-mt adapt` needs the package {error.name}, which is not installed: pip install 'rag-mt[train]'"
        ) from error

    names = "minutes sentences llm adapter back_llm back_adapter device dtype engine restart replace"
    request = Request(
        Path(options.index),
        options.src,
        pairs=tuple(options.pairs),
        replay=tuple(options.replay),
        cluster=cluster_of(options),
        **{name: getattr(options, name) for name in names.split()},
    )
    try:
        outcome = adapted(request, read_config(options, AdaptConfig))
    except KeyboardInterrupt:
        note("interrupted: what is finished is kept; the same command goes on there")
        return INTERRUPTED
    if outcome is None:
        note(f"the adapter from {options.src} of {options.index} is finished already")
        return OK
    told = f"{outcome.scores.describe()} on {outcome.report['held_out']} held-out sentences"
    if outcome.folder is None:
        note(f"the adapter is not better and is not kept: {told}")
        return PARTLY
    note(f"{outcome.folder}: {told}; more in {outcome.folder / 'report.md'}")
    note(f"`rag-mt translate --index {options.index} --src {options.src}` uses it")
    return OK
