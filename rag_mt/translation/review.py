"""What people should look at of a job's translations: a table for a spreadsheet, the worst first."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rag_mt.base.files import whole_file
from rag_mt.base.quality import BEST, is_faulty
from rag_mt.base.types import TranslatedText
from rag_mt.translation.jobs import SplitSegment

HEAD = ("place", "quality", "grade", "findings", "source", "translation")


@dataclass
class Review:
    """Gathers the translations in which a check found an error or whose quality is estimated too low."""

    rows: list[tuple[float, SplitSegment, TranslatedText]] = field(default_factory=list)

    def watch(self, segments: Iterable[SplitSegment], texts: Iterable[TranslatedText]) -> Iterator[TranslatedText]:
        """The same texts, those of the segments in their order."""
        for part, translated in zip(segments, texts, strict=True):
            if is_faulty(translated):
                score = BEST if translated.estimate is None else translated.estimate.score
                self.rows.append((score, part, translated))
            yield translated

    def write(self, path: Path) -> None:
        """Write a TSV file with a head."""
        with whole_file(path) as new, new.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, "excel-tab", lineterminator="\n")
            table.writerow(HEAD)
            for _, part, translated in sorted(self.rows, key=lambda row: row[0]):
                estimate = translated.estimate
                quality = ("", "") if estimate is None else (f"{estimate.score:.1f}", estimate.grade)
                findings = "; ".join(finding.message for finding in translated.findings)
                table.writerow([part.segment.origin, *quality, findings, part.segment.text, translated.text])
