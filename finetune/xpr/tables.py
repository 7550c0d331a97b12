"""The sizes of phrase sets as Markdown, like tables 1 and 6 of the XPR paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from finetune.xpr.build import TEST_PAIRS
from rag_mt.base.paths import whole_file
from retrievers.xpr.examples import SPLITS, ExampleSet

NAMES = {"train": "Train", "dev": "Dev", "test": "Test"}


def write_report(path: Path, sets: Sequence[ExampleSet]) -> None:
    """Write the sizes of the sets to a Markdown file."""
    with whole_file(path) as part:
        part.write_text("\n".join(report_lines(sets)) + "\n", encoding="utf-8")


def report_lines(sets: Sequence[ExampleSet]) -> list[str]:
    """The lines of the report."""
    names = [s.name for s in sets]
    numbers: list[dict[str, Any]] = [dict(s.manifest["statistics"]) for s in sets]
    lines = [
        "# Phrase pairs with example sentences: sizes",
        "",
        "Made by `python -m finetune.xpr.data --data DIR --output PHRASES --report reports/xpr-data.md`; DIR holds "
        "bilingual lexicons and parallel text, of which each side serves as monolingual text.",
        "",
        "## Phrase pairs (the paper's table 1)",
        "",
        _row(["", *names, "Total"]),
        _row(["---", *["---:"] * (len(names) + 1)]),
    ]
    for split in SPLITS[:3]:
        counts = [n[split]["pairs"] for n in numbers]
        lines.append(_row([NAMES[split], *map(str, counts), str(sum(counts))]))
    several = [n["test"]["of several words"] for n in numbers]
    lines.append(_row(["Test, several words", *map(str, several), str(sum(several))]))
    lines += ["", "## Details (the paper's table 6)", "", _row(["xx / en", *names])]
    lines.append(_row(["---", *["---:"] * len(names)]))
    rows = (
        ("words per phrase", "average words of a phrase"),
        ("words per sentence", "average words of an example sentence"),
        ("examples per phrase", "average examples of a phrase"),
    )
    for split in SPLITS[:3]:
        lines.append(_row([f"{NAMES[split]}: pairs", *(str(n[split]["pairs"]) for n in numbers)]))
        for key, title in rows:
            lines.append(_row([f"{NAMES[split]}: {title}", *(_both(n[split][key]) for n in numbers)]))
    for key in ("other candidates", "sentences", "examples"):
        lines.append(_row([f"All: {key}", *(_both(n[key]) for n in numbers)]))
    lines += [
        "",
        "`Other candidates` are phrases of no pair that are searched along with those of a split; they stand in the "
        "same sentences. A concept, English words in their base form, is in the same split in all pairs.",
        "",
        "A pair is tested only if all translations that the lexicon has of its phrase are of held-out concepts. By "
        f"that rule some languages have fewer than {TEST_PAIRS:,} test pairs, and where phrases of several words run "
        "out, words take their places: then they are fewer than half of a test set.",
    ]
    if all("lexicon" in s.manifest for s in sets):
        lines += ["", "## What the lexicons had", "", _row(["", *names]), _row(["---", *["---:"] * len(names)])]
        found: list[dict[str, Any]] = [s.manifest["lexicon"] for s in sets]
        lines.append(_row(["usable entries", *(str(f["entries"]) for f in found)]))
        for reason in dict.fromkeys(r for f in found for r in sorted(f["skips"])):
            lines.append(_row([f"left out: {reason}", *(str(f["skips"].get(reason, 0)) for f in found)]))
        sentences = [list(f["sentences to choose from"].values()) for f in found]
        lines.append(_row(["sentences to choose from, xx / en", *map(_both, sentences)]))
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _both(numbers: Sequence[float]) -> str:
    return " / ".join(str(n) for n in numbers)
