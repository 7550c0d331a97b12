"""Make the examples that a language model is tuned on: sentence pairs with the hints of one method.

    python -m finetune.lora.data --config lora-llama2 --data DIR --group to-en --method phrase \\
        --index en=INDEX --output phrase.to-en.jsonl

The pairs (300 of each language by default) are drawn with a seed from those that no phrase retriever was trained on;
they are the same for every method. Hints are those that the index gives when it is searched without the sentences that
are nearly equal to the pair's own target. A stopped run goes on where it was. `--part dev --pairs 20` makes examples of
development data, for the loss during training.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from finetune.lora.config import Config, DataConfig
from finetune.lora.examples import (
    GROUPS,
    PARTS,
    Example,
    facts_of,
    manifest_path,
    read_examples,
    sampled_pairs,
    write_examples,
)
from finetune.lora.hints import METHODS, Indexes, examples_of, indexes_of, retrieved
from finetune.lora.references import RULE
from finetune.training.settings import read_config, settings_parser
from rag_mt import __version__
from rag_mt.base.console import OK, add_model_options, note, positive, run
from rag_mt.base.defaults import DEFAULT_RETRIEVER
from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS, file_sha256, read_json, settings_hash, write_json
from rag_mt.base.types import Skips
from rag_mt.text.answers import takes_up
from rag_mt.translation.journal import Journal
from retrievers.calibration import default_index
from retrievers.registry import encoder_for, retriever_spec

TRAIN_PAIRS, DEV_PAIRS = 20, 2
"""Of each language of the sample corpus."""


@dataclass(frozen=True)
class Data:
    """Examples to train on and to measure the loss on, with what is recorded of them."""

    train: Sequence[Example]
    dev: Sequence[Example] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def data_of(examples: Sequence[str], dev: Sequence[str], settings: DataConfig, device: str) -> Data:
    """The examples of files, or those of the sample corpus where no file is named."""
    if not examples:
        note("no --examples: trying out on sentences of the sample corpus, which makes no adapter for real use")
        return sample_data(settings, device)
    files, dev_files = [Path(p) for p in examples], [Path(p) for p in dev]
    facts = {"examples": facts_of(files), "dev": facts_of(dev_files)}
    return Data(read_examples(files), read_examples(dev_files), facts)


def sample_data(settings: DataConfig, device: str) -> Data:
    """Examples into English from the sample corpus, far too few to learn from, with hints of the default retriever from
    the sample index. Raises UserError if the corpus has none of the languages."""
    languages = tuple(code for code in settings.languages if (SAMPLE_CORPUS / f"{code}.txt").is_file())
    if not languages:
        raise UserError(
            f"the sample corpus has none of the languages {', '.join(settings.languages)}: give --examples, or other "
            "data.languages"
        )
    folder = default_index(DEFAULT_RETRIEVER, "en", encoder_for(DEFAULT_RETRIEVER, None, device), show=True)
    indexes = Indexes({"en": folder}, retriever_spec(DEFAULT_RETRIEVER).unit, device)
    train = replace(settings, languages=languages, least_confidence=(), pairs=TRAIN_PAIRS, held_out=False)
    parts = []
    for part in (train, replace(train.for_development, pairs=DEV_PAIRS, held_out=True)):
        pairs = sampled_pairs(SAMPLE_CORPUS, "sample", "to-en", part, Skips(shown=0))
        parts.append(examples_of(pairs, indexes.unit, retrieved(pairs, indexes, part), part))
    return Data(parts[0], parts[1], {"examples": "sentences of the sample corpus, for trying out only"})


def make_examples(options: argparse.Namespace) -> int:
    """Draw the pairs, find their hints and write both with a manifest; prints what the hints are like."""
    changes = {"data.pairs": str(options.pairs)} if options.pairs else {}
    settings = read_config(options, Config, changes).data
    if options.part == "dev":
        settings = settings.for_development
    targets = ("en",) if options.group == "to-en" else settings.languages
    indexes = indexes_of(options.index, options.method, targets, options.device, options.dtype)
    skips, output = Skips(shown=0), Path(options.output)
    journal_path = output.with_name(output.name + ".rag-mt-journal")
    pairs = sampled_pairs(Path(options.data), options.part, options.group, settings, skips)
    origin: dict[str, Any] = {
        "version": __version__,
        "method": options.method,
        "group": options.group,
        "part": options.part,
        "settings": asdict(settings),
        "pairs": settings_hash([asdict(pair) for pair in pairs]),
        "indexes": indexes.facts,
        "left_out": RULE,
    }
    origin = json.loads(json.dumps(origin))  # lists for tuples, as in a manifest that is read
    stopped_at_the_end = not manifest_path(output).exists() and journal_path.exists()
    if output.exists() and not options.restart and not stopped_at_the_end:
        manifest = _checked_manifest(output, origin)
        note(f"{output} is finished already")
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        with closing(Journal(journal_path, origin, options.restart)) as journal:
            if journal.resumed:
                note(f"{output}: kept the hints of {journal.resumed} of {len(pairs)} pairs of the interrupted run")
            hints = retrieved(pairs, indexes, settings, journal)
        examples = examples_of(pairs, indexes.unit, hints, settings)
        write_examples(output, examples)
        manifest = {
            **origin,
            "examples": len(examples),
            "sha256": file_sha256(output),
            "retrievers": hints.facts,
            "directions": counts(examples, hints.left_out),
            "skipped": dict(skips.counts),
        }
        write_json(manifest_path(output), manifest)
        journal_path.unlink()
        note(f"{output}: {len(examples)} examples; {skips.summary() or 'no pair was unusable'}")
    for direction, row in manifest["directions"].items():
        sys.stdout.write(
            f"{direction}: {row['pairs']} pairs, {row['with_hints']} with hints, {row['hints']} hints "
            f"({row['in_reference']} % stand in the reference, {row['covered']} % of the source covered); "
            f"{row['near_equal_sentences']} near-equal sentences of the index left out for "
            f"{row['pairs_with_near_equal']} pairs\n"
        )
    return OK


def _checked_manifest(output: Path, origin: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of examples that are made already; raises UserError if they were made of something else."""
    path = manifest_path(output)
    manifest: dict[str, Any] = read_json(path) if path.is_file() else {}
    different = sorted(key for key, value in origin.items() if manifest.get(key) != value)
    if different or manifest.get("sha256") != file_sha256(output):
        raise UserError(
            f"{output} is there already and has another {', '.join(different or ['content'])}: give another --output, "
            "or use --restart to replace it"
        )
    return manifest


def counts(examples: Sequence[Example], left_out: Sequence[int]) -> dict[str, dict[str, float]]:
    """By direction: the pairs; those with hints; hints; hints whose phrase stands in the reference, and characters of
    the source that hints cover, in per cent; pairs that sentences of the index were left out for; such sentences.
    `left_out` has the number of these for each example."""
    by_direction: dict[str, dict[str, float]] = {}
    for direction in dict.fromkeys(example.pair.direction for example in examples):
        rows = [(e, n) for e, n in zip(examples, left_out, strict=True) if e.pair.direction == direction]
        hints = [(example.pair, hint) for example, _ in rows for hint in example.hints]
        right = sum(takes_up(pair.target, hint) for pair, hint in hints)
        covered = sum(len(hint.source_span) for _, hint in hints)
        by_direction[direction] = {
            "pairs": len(rows),
            "with_hints": sum(bool(example.hints) for example, _ in rows),
            "hints": len(hints),
            "in_reference": round(100 * right / max(1, len(hints)), 1),
            "covered": round(100 * covered / sum(len(example.pair.source) for example, _ in rows), 1),
            "pairs_with_near_equal": sum(n > 0 for _, n in rows),
            "near_equal_sentences": sum(n for _, n in rows),
        }
    return by_direction


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = settings_parser(
        "lora.data",
        __doc__,
        Config,
        examples=[
            "--config lora-embedded --data examples/data --group to-en --method plain --output plain.to-en.jsonl",
            "--config lora-embedded --data DATA --group to-en --method phrase --index en=INDEX --output hints.jsonl",
        ],
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv or dev/XX-en.tsv")
    parser.add_argument("--part", choices=PARTS, default="train", help="part of the data")
    parser.add_argument("--group", choices=GROUPS, required=True, help="into English or from English")
    parser.add_argument("--method", choices=METHODS, required=True, help="what the prompts show")
    parser.add_argument(
        "--index", action="append", default=[], metavar="LANG=DIR", help="index of a target language (repeatable)"
    )
    parser.add_argument("--pairs", type=positive, metavar="N", help="pairs per language (default: the settings')")
    parser.add_argument("--output", "-o", required=True, metavar="FILE.jsonl", help="file of the examples")
    parser.add_argument("--restart", action="store_true", help="begin anew and replace what is there")
    add_model_options(parser)
    return run(make_examples, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
