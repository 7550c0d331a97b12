"""Make the examples that a language model is tuned on: sentence pairs with the hints of one method.

    python -m finetune.lora.data --config configs/lora-llama2.toml --data DIR --group to-en --method phrase \\
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
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from finetune.lora.config import Config, DataConfig
from finetune.lora.examples import Example, manifest_path, write_examples
from finetune.lora.hints import METHODS, Found, Indexes, examples_of, indexes_of, retrieved
from finetune.lora.leave_out import RULE
from finetune.lora.sample import GROUPS, PARTS, Group, Pair, Part, sampled_pairs
from rag_mt import __version__
from rag_mt.base.console import OK, Parser, add_model_options, note, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import file_sha256, read_json, settings_hash
from rag_mt.base.paths import whole_file
from rag_mt.base.settings import changes_of
from rag_mt.base.types import Skips
from rag_mt.text.answers import takes_up
from rag_mt.translation.journal import Journal


def make_examples(options: argparse.Namespace) -> int:
    """Draw the pairs, find their hints and write both with a manifest; prints what the hints are like."""
    changes = changes_of(options.set)
    if options.pairs:
        changes["data.pairs"] = str(options.pairs)
    settings = Config.read(Path(options.config), changes).data
    group, part, output = cast(Group, options.group), cast(Part, options.part), Path(options.output)
    if part == "dev":
        settings = settings.for_development
    targets = ("en",) if group == "to-en" else settings.languages
    indexes = indexes_of(options.index, options.method, targets, options.device, options.dtype)
    skips = Skips(shown=0)
    pairs = sampled_pairs(Path(options.data), part, group, settings, skips)
    made_of = {
        "version": __version__,
        "method": options.method,
        "group": group,
        "part": part,
        "settings": asdict(settings),
        "pairs": settings_hash([asdict(pair) for pair in pairs]),
        "indexes": indexes.facts if indexes else {},
        "left_out": RULE,
    }
    made_of = json.loads(json.dumps(made_of))
    if not options.restart and (finished := _finished(output, made_of)):
        note(f"{output} is finished already")
        sys.stdout.write(described(finished["directions"]))
        return OK
    with_hints = retrieved_with_journal(pairs, indexes, settings, output, made_of, options.restart)
    examples = examples_of(pairs, METHODS[options.method], with_hints, settings)
    directions = counts(examples, with_hints)
    write_examples(output, examples)
    manifest = {
        **made_of,
        "examples": len(examples),
        "sha256": file_sha256(output),
        "retrievers": with_hints.facts,
        "directions": directions,
        "skipped": dict(skips.counts),
    }
    with whole_file(manifest_path(output)) as file:
        file.write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _journal_path(output).unlink(missing_ok=True)
    note(f"{output}: {len(examples)} examples; {skips.summary() or 'no pair was unusable'}")
    sys.stdout.write(described(directions))
    return OK


def _finished(output: Path, made_of: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The manifest of examples that are made already; raises UserError if they were made of something else."""
    path = manifest_path(output)
    if not output.exists() or (not path.exists() and _journal_path(output).exists()):  # stopped between its last files
        return None
    found: Mapping[str, Any] = read_json(path) if path.is_file() else {}
    if any(found.get(key) != value for key, value in made_of.items()) or found.get("sha256") != file_sha256(output):
        different = sorted(key for key, value in made_of.items() if found.get(key) != value) or ["content"]
        raise UserError(
            f"{output} is there already and has another {', '.join(different)}: give another --output, or use "
            "--restart to replace it"
        )
    return found


def _journal_path(output: Path) -> Path:
    return output.with_name(output.name + ".rag-mt-journal")


def retrieved_with_journal(
    pairs: Sequence[Pair],
    indexes: Indexes | None,
    settings: DataConfig,
    output: Path,
    made_of: Mapping[str, Any],
    restart: bool,
) -> Found:
    """`retrieved`, going on from what an earlier run has left beside `output`."""
    if indexes is None:
        return retrieved(pairs, None, settings)
    output.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(_journal_path(output), made_of, restart)
    try:
        if journal.kept:
            note(f"{output}: kept the hints of {journal.kept} of {len(pairs)} pairs of the interrupted run")
        return retrieved(pairs, indexes, settings, journal)
    finally:
        journal.close()


def counts(examples: Sequence[Example], found: Found) -> dict[str, dict[str, float]]:
    """By direction: the pairs; those with hints; hints; hints whose phrase stands in the reference, and characters of
    the source that hints cover, in per cent; pairs that sentences of the index were left out for; such sentences."""
    made: dict[str, dict[str, float]] = {}
    for direction in dict.fromkeys(example.pair.direction for example in examples):
        rows = [n for n, example in enumerate(examples) if example.pair.direction == direction]
        own = [examples[n] for n in rows]
        hints = [(example.pair, hint) for example in own for hint in example.hints]
        right = sum(takes_up(pair.target, hint) for pair, hint in hints)
        covered = sum(len(hint.source_span) for _, hint in hints)
        made[direction] = {
            "pairs": len(own),
            "with_hints": sum(bool(example.hints) for example in own),
            "hints": len(hints),
            "in_reference": round(100 * right / max(1, len(hints)), 1),
            "covered": round(100 * covered / sum(len(example.pair.source) for example in own), 1),
            "pairs_with_near_equal": sum(found.left_out[n] > 0 for n in rows),
            "near_equal_sentences": sum(found.left_out[n] for n in rows),
        }
    return made


def described(directions: Mapping[str, Mapping[str, float]]) -> str:
    """The counts as lines for people."""
    lines = []
    for direction, own in directions.items():
        lines.append(
            f"{direction}: {own['pairs']} pairs, {own['with_hints']} with hints, {own['hints']} hints "
            f"({own['in_reference']} % stand in the reference, {own['covered']} % of the source covered); "
            f"{own['near_equal_sentences']} near-equal sentences of the index left out for "
            f"{own['pairs_with_near_equal']} pairs\n"
        )
    return "".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m finetune.lora.data", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="settings, such as configs/lora-llama2.toml")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv or dev/XX-en.tsv")
    parser.add_argument("--part", choices=PARTS, default="train", help="default: train")
    parser.add_argument("--group", choices=GROUPS, required=True, help="into English or from English")
    parser.add_argument("--method", choices=METHODS, required=True, help="what the prompts show")
    parser.add_argument(
        "--index", action="append", default=[], metavar="LANG=DIR", help="index of a target language (repeatable)"
    )
    parser.add_argument("--pairs", type=positive, metavar="N", help="pairs per language (default: the settings')")
    parser.add_argument("--output", "-o", required=True, metavar="FILE.jsonl")
    parser.add_argument("--restart", action="store_true", help="begin anew and replace what is there")
    add_model_options(parser)
    return run(make_examples, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
