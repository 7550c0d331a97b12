"""The summary of the reports says what they say: its tables cell by cell, the numbers of its text by standing there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[3] / "reports"
PASSAGE_ROWS = {
    "BM25": "BM25",
    "`multilingual-e5-small`": "untrained",
    "mDPR, loss of retrieval alone": "ir",
    "and semantic contrastive loss (`mdpr-e5-small` is one of them)": "sema",
    "the same and BM25 (hybrid)": "sema + BM25 (hybrid)",
    "without pairs of Russian and Turkish: semantic loss": "part-sema",
    "without pairs of Russian and Turkish: semantic and language contrastive loss": "part-sema-lang",
}
PASSAGE_COLUMNS = (
    "MRR@100, same language",
    "MRR@100, one other language alone",
    "MRR@100, cross-language",
)
PASSAGE_TABLES = {
    "passages.md": (PASSAGE_ROWS, "Avg"),
    "losses.md": (
        {
            "retrieval loss alone": "ir",
            "retrieval and semantic loss": "sema",
            "retrieval and language loss": "lang",
            "all three": "sema-lang",
        },
        "Avg",
    ),
    "left-out.md": (
        {
            "retrieval loss alone": "ir",
            "and semantic loss": "part-sema",
            "and both": "part-sema-lang",
            "and language loss": "part-lang",
            "language loss, text of the searched kind": "part-lang-domain",
            "both, text of the searched kind": "part-sema-lang-domain",
        },
        "Avg no parallel",
    ),
    "transfer.md": ({"before": "sema", "headings": "titles", "generated questions": "generated"}, "Avg"),
}
"""The rows of the summary's table of a report, with the system of each, and the column of the report that they show."""
SETTINGS = (
    "Without training pairs (the paper: unsupervised)",
    "Supervised: trained on the pairs of the set",
    "Zero-shot: trained on the pairs of de-en",
    "Multilingual",
)


@cache
def read(name: str) -> str:
    return (REPORTS / name).read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    """What stands below a heading that begins with these words, up to the next one of its level or a higher one."""
    match = re.search(rf"^(#+) {re.escape(heading)}.*$", read(name), re.MULTILINE)
    assert match, heading
    below = read(name)[match.end() :]
    following = re.search(rf"^#{{1,{len(match[1])}}} ", below, re.MULTILINE)
    return below[: following.start()] if following else below


def rows(text: str, head: str) -> dict[str, list[str]]:
    """The rows of the first table whose head begins with this cell, by their own first cell."""
    result: dict[str, list[str]] = {}
    for line in text[text.index(f"| {head}".rstrip()) :].splitlines():
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        result[name.strip("`")] = cells
    return result


def first_number(cell: str) -> float:
    match = re.search(r"[+-]?\d[\d,]*(\.\d+)?", cell)
    assert match, cell
    return float(match[0].replace(",", ""))


def rounded(shown: str, exact: float) -> bool:
    """Whether a number as it is shown is an exact one, rounded to the places that are shown."""
    return abs(float(shown.replace(",", "")) - exact) <= 0.5 * 10.0 ** -len(shown.partition(".")[2]) + 1e-9


def check(shown: Sequence[str], exact: Sequence[str]) -> None:
    assert len(shown) == len(exact)
    for a, b in zip(shown, exact, strict=True):
        assert rounded(a.strip("*"), first_number(b)), f"{a} is shown for {b}"


def test_phrases_of_ccpr() -> None:
    shown = rows(section("summary.md", "Phrases found by CCPR"), "accuracy@1, strict surface")
    exact = rows(read("phrases-gold.md"), "accuracy@1, %")
    (untrained,), (trained,) = ([exact[name] for name in exact if name.startswith(s)] for s in ("untrained", "ccpr-e5"))
    check(shown["ccpr-e5-small"], trained[:4])
    check(next(cells for name, cells in shown.items() if name.startswith("multilingual-e5")), untrained[:4])


@pytest.mark.parametrize("column", range(4))
def test_phrases_of_xpr(column: int) -> None:
    shown = rows(section("summary.md", "Phrases found by XPR"), "")
    text = section("xpr.md", SETTINGS[column])
    exact, paper = rows(text, "system"), rows(text, "the paper")
    for name in ("CLWE", "CLSE", "XPR"):
        ours, brackets = next(cells for first, cells in shown.items() if first.startswith(name))[column].split()
        systems = [cells for system, cells in exact.items() if system.split(",")[0] == name]
        check([ours], [systems[0][-2]])
        check([brackets.strip("()")], [next(cells for first, cells in paper.items() if first.startswith(name))[-1]])


@pytest.mark.parametrize("name", PASSAGE_TABLES)
def test_passages(name: str) -> None:
    text = section("summary.md", "Passages")
    shown = rows(text[text.index(f"\n[{name}]({name})") :], "MRR@100")
    systems, average = PASSAGE_TABLES[name]
    assert len(shown) == 2 + len(systems)  # with the head and the rule
    for label, system in systems.items():
        exact = [of_column(section(name, heading), system, average) for heading in PASSAGE_COLUMNS]
        exact.append(of_column(section(name, "Language bias"), system, "first 20"))
        cells = shown[label.strip("`")]
        check(cells, exact[: len(cells)])


def of_column(table: str, row: str, column: str) -> str:
    """A cell of a report's table."""
    found = rows(table, "system")
    return found[row][found["system"].index(column)]


HINTED = ["sentence", "ccpr", "xpr", "passage", "bm25", "hybrid", "memory"]


@pytest.mark.parametrize("system", ["plain", *HINTED])
def test_translation(system: str) -> None:
    shown = rows(section("summary.md", "Translation"), "chrF")[system]
    groups = [rows(section("wmt16.md", f"chrF, {group}"), "chrF")[system][:6] for group in ("X", "English")]
    check(shown, [*groups[0], *groups[1]])


@pytest.mark.parametrize("system", ["plain", "memory"])
def test_memory(system: str) -> None:
    shown = rows(section("summary.md", "A memory in documents of one's own"), "chrF")[system]
    exact = rows(section("domains.md", "chrF, averages"), "chrF")[system]
    check(shown, [*exact[:5], exact[-1]])


def test_gains_of_a_memory() -> None:
    text = " ".join(section("summary.md", "A memory in documents of one's own").split())
    told = re.findall(r"[+-]\d+\.\d+", text)
    (gains,) = [
        cells for name, cells in rows(section("domains.md", "Primary test"), "system").items() if name == "memory"
    ]
    bins = section("domains.md", "memory, by chrF of the nearest index sentence")
    nearest = [cells[4] for cells in list(rows(bins, "similarity").values())[2:7]]  # below the head and the rule
    (shuffled,) = [
        cells
        for name, cells in rows(section("domains-shuffled.md", "Primary test"), "system").items()
        if name == "memory"
    ]
    bleu_news, chrf_news = (
        rows(part, "system")["memory"]  # the last row: all directions
        for part in section("news.md", "Gains over plain").split("### ")[1:3]
    )
    news = [chrf_news[1], *chrf_news[2].split(" to "), bleu_news[1]]
    (seeds,) = [
        cells for name, cells in rows(section("domains-seeds.md", "Primary test"), "system").items() if name == "memory"
    ]
    trainings = [seeds[1], *seeds[2].split(" to "), *seeds[6].partition(" (")[0].split(", ")]
    assert told == [gains[1], *gains[2].split(" to "), *nearest, *trainings, *shuffled[2].split(" to "), *news]
    assert f"(p {seeds[3]})" in text and f"better in {seeds[7]}." in text
    assert f"is better in {chrf_news[5]} and significantly worse in none" in text and "0 worse" in chrf_news[6]
    assert f"worse by {shuffled[1].removeprefix('+')} chrF" in text
    bleu = rows(section("domains.md", "BLEU, averages"), "BLEU")
    assert " and ".join(bleu[name][-1].split()[0] for name in ("plain", "memory")) in text
    assert f"is there in {gains[7]}, significantly in {gains[8]}." in text


@pytest.mark.parametrize("system", HINTED)
def test_differences_of_translation(system: str) -> None:
    """With those in bold that are significant after Holm's correction."""
    text = section("summary.md", "Translation")
    shown = rows(text[text.index("| | chrF | BLEU | BERTScore") :], "")[system]
    gains = section("wmt16.md", "Gains over plain")
    for metric, cell in zip(("chrF", "BLEU", "BERTScore"), shown, strict=True):
        own = gains[gains.index(f"### {metric}\n") :]
        for told, group in zip(cell.split(", "), ("X -\\> English", "English -\\> X", "all directions"), strict=True):
            line = next(line for line in own.splitlines() if line.startswith(f"| {system} | {group} |"))
            gain, _, _, p_by_holm = (part.strip() for part in line.strip("|").split("|")[2:6])
            check([told], [gain])
            assert told.startswith("**") == (float(p_by_holm) < 0.05), line


def _prose_and_reports(text: str) -> Mapping[str, list[str]]:
    """The numbers with a point in the prose below each report's name, up to the next one's; tables are left out, and
    what stands nowhere else."""
    result: dict[str, list[str]] = {}
    for part in re.split(r"\n\n(?=\[[\w-]+\.md\])", text)[1:]:
        name = re.match(r"\[([\w-]+\.md)\]", part)[1]  # type: ignore[index]
        prose = part.split("For retrievers without a confidence model")[0]
        prose = "\n".join(line for line in prose.splitlines() if not line.startswith(("|", "#")))
        result.setdefault(name, []).extend(re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", prose))
    return result


PROSE = _prose_and_reports(read("summary.md"))
ARITHMETIC = {"segmentation-ngrams.md": {"2.4"}}
"""A ratio of numbers that stand beside it."""


@pytest.mark.parametrize("name", PROSE)
def test_numbers_of_the_text(name: str) -> None:
    there = [float(number) for number in re.findall(r"\d+\.\d+", read(name))]
    for number in PROSE[name]:
        if number not in ARITHMETIC.get(name, ()):
            assert any(rounded(number, exact) for exact in there), f"{number} does not stand in {name}"


def test_every_report_is_in_the_index() -> None:
    index = read("README.md")
    for path in REPORTS.glob("*.md"):
        assert path.name == "README.md" or f"({path.name})" in index, path.name
