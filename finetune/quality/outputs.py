"""Translate pairs of training data, and score the translations by their reference: examples for the quality estimator.

    python -m finetune.quality.outputs --config lora-memory --data DIR --pairs 400 --output OUTPUTS.jsonl

The pairs (so many in each of the twelve directions) are drawn as those that the language model is tuned on, without the
blocks that suites of domains hold out, and translated without hints. `chrf` is that of a single sentence, `logprob`
what the model says of its answer (see `rag_mt.base.types.Completion`). A stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from sacrebleu.metrics.chrf import CHRF

from eval.data.domains import DOMAINS, excluded, normalised
from finetune.lora.config import Config
from finetune.lora.examples import GROUPS, Pair, sampled_pairs
from finetune.training.settings import read_config, settings_parser
from rag_mt.base.console import OK, add_engine_option, add_model_options, note, positive, progress, run
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.files import whole_file
from rag_mt.base.types import LanguageModel, Prompt, Skips, Span
from rag_mt.formats.format import Segment
from rag_mt.translation.jobs import Counts, SplitSegment, translate_segments
from rag_mt.translation.journal import Journal
from rag_mt.translation.translator import Translator


class _Scored(Translator):
    """Asks how likely each answer is."""

    def asked(self, prompt: Prompt) -> Prompt:
        return replace(prompt, scored=True)


def make_outputs(options: argparse.Namespace) -> int:
    """Write the outputs; returns the exit code."""
    config = read_config(options, Config, {"data.pairs": str(options.pairs)})
    data, output, skips = Path(options.data), Path(options.output), Skips(shown=0)
    left_out = {text for domain in DOMAINS for text in excluded(data, domain)}
    by_direction: dict[str, list[Pair]] = {}
    for group in GROUPS:
        for pair in sampled_pairs(data, "train", group, config.data, skips):
            english = pair.source if pair.source_language == "en" else pair.target
            if normalised(english) not in left_out:
                by_direction.setdefault(pair.direction, []).append(pair)
    total = sum(map(len, by_direction.values()))
    with (
        closing(progress(total, "sentences", "translating")) as bar,
        whole_file(output) as part,
        part.open("w", encoding="utf-8") as out,
    ):
        llm: LanguageModel | str = DEFAULT_LLM
        loading = {name: getattr(options, name) for name in ("device", "dtype", "engine", "batch_size")}
        for direction, pairs in sorted(by_direction.items()):
            translator = _Scored(*direction.split("-"), llm=llm, **loading)
            llm = translator.llm
            for row in _rows(translator, pairs, _journal(output, direction), bar):
                out.write(json.dumps({"direction": direction, **row}, ensure_ascii=False) + "\n")
    for path in map(_journal, [output] * len(by_direction), by_direction):
        path.unlink(missing_ok=True)
    note(f"{total} translations are in {output}")
    return OK


def _journal(output: Path, direction: str) -> Path:
    return output.with_name(f"{output.name}.{direction}.rag-mt-journal")


def _rows(translator: Translator, pairs: Sequence[Pair], journal: Path, bar: Any) -> Iterator[dict[str, Any]]:
    """What is written of the pairs of a direction, but for those that could not be translated."""
    segments = [SplitSegment(Segment(p.source, p.origin), (Span(0, len(p.source)),)) for p in pairs]
    chrf = CHRF()
    with closing(Journal(journal, translator.settings)) as finished:
        texts = translate_segments(translator, segments, Counts(), finished, bar.update)
        for pair, text in zip(pairs, texts, strict=True):
            if text.sentences[0].ok:
                score = chrf.sentence_score(text.text, [pair.target]).score
                told = {"logprob": text.sentences[0].logprob} if text.sentences[0].logprob is not None else {}
                yield {"source": pair.source, "target": text.text, "chrf": round(score, 2), **told}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    example = "--config lora-memory --data DIR --pairs 400 --output OUTPUTS.jsonl"
    parser = settings_parser("quality.outputs", __doc__, Config, examples=[example])
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder with train/ and domains/")
    add("--pairs", type=positive, default=400, metavar="N", help="sentences of each direction")
    add("--batch-size", type=positive, default=64, metavar="N", help="most sentences computed at once")
    add("--output", required=True, metavar="FILE", help="JSONL file to write")
    add_model_options(parser)
    add_engine_option(parser)
    return run(make_outputs, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
