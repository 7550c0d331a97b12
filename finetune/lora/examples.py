"""Examples for tuning a language model, as a JSONL file: sentence pairs with the hints that a translation would see."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetune.lora.sample import Pair
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import file_sha256, read_json
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Hint, Hit, Origin, Sentence, Span, Unit


@dataclass(frozen=True)
class Example:
    """A sentence pair with hints; `unit` is what the hints' hits are."""

    pair: Pair
    unit: Unit
    hints: tuple[Hint, ...] = ()

    @property
    def sentence(self) -> Sentence:
        """The sentence to translate."""
        return Sentence(self.pair.source, self.pair.source_language, self.pair.origin)


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Write the file, whole or not at all."""
    with whole_file(path) as part, part.open("w", encoding="utf-8") as out:
        for example in examples:
            out.write(json.dumps(_as_record(example), ensure_ascii=False) + "\n")


def read_examples(paths: Sequence[Path]) -> list[Example]:
    """The examples of some files, in order; raises UserError for a file that is missing or none of examples."""
    made = []
    for path in paths:
        if not path.is_file():
            raise UserError(f"there are no examples {path}: make them with `python -m finetune.lora.data`")
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    made.append(_from_record(json.loads(line)))
                except (ValueError, KeyError, TypeError) as error:
                    raise UserError(
                        f"{path} has no example in line {number}: make it again with `python -m finetune.lora.data`"
                    ) from error
    return made


def manifest_path(path: Path) -> Path:
    """Where the manifest of a file of examples lies."""
    return path.with_name(f"{path.name}.manifest.json")


def facts_of(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """For each file of examples its name, its hash and what its manifest says, if it has one."""
    return [
        {
            "file": path.name,
            "sha256": file_sha256(path),
            **(read_json(manifest_path(path)) if manifest_path(path).is_file() else {}),
        }
        for path in paths
    ]


def _as_record(example: Example) -> dict[str, Any]:
    pair = example.pair
    return {
        "source_language": pair.source_language,
        "target_language": pair.target_language,
        "source": pair.source,
        "target": pair.target,
        "domain": pair.domain,
        "file": pair.origin.file,
        "line": pair.origin.line,
        "unit": example.unit,
        "hints": [
            {
                "source_span": [hint.source_span.start, hint.source_span.end],
                "phrase": hint.phrase,
                "span": [hint.hit.span.start, hint.hit.span.end],
                "sentence": hint.hit.sentence.text,
                "score": hint.hit.score,
                "file": hint.hit.sentence.source.file,
                "line": hint.hit.sentence.source.line,
            }
            for hint in example.hints
        ],
    }


def _from_record(found: Mapping[str, Any]) -> Example:
    pair = Pair(
        found["source_language"],
        found["target_language"],
        found["source"],
        found["target"],
        found["domain"],
        Origin(found["file"], found["line"]),
    )
    hints = tuple(
        Hint(
            Span(*own["source_span"]),
            Hit(
                Sentence(own["sentence"], pair.target_language, Origin(own["file"], own["line"])),
                Span(*own["span"]),
                own["score"],
            ),
        )
        for own in found["hints"]
    )
    return Example(pair, found["unit"], hints)
