"""Notes in XLIFF on what the checks found in a translation: they are told by whom they are from (XLIFF 1), or by their
category and the number of their segment (XLIFF 2), so that the next translation takes theirs away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lxml import etree

from rag_mt.base.findings import Finding
from rag_mt.formats.xml import insert_after, legal, remove

CHECK = "rag-mt check"


def renew(holder: Any, target: Any, findings: Sequence[Finding]) -> None:
    """Let the notes of a `trans-unit`, or those of a `unit` on one `segment`, be about these findings."""
    namespace = target.tag.removesuffix("target")
    if holder.tag.endswith("segment"):
        _renew_in_unit(holder, namespace, findings)
        return
    for old in holder.findall(f"{namespace}note[@from='{CHECK}']"):
        remove(old)
    for finding in reversed(findings):
        insert_after(target, _note(namespace, finding, {"from": CHECK, "annotates": "target"}))


def _renew_in_unit(segment: Any, namespace: str, findings: Sequence[Finding]) -> None:
    unit = segment.getparent()
    mark = f"rag-mt-check-{unit.findall(segment.tag).index(segment) + 1}-"
    notes = unit.find(f"{namespace}notes")
    if notes is None:
        notes = etree.Element(f"{namespace}notes")
        first = next(e for e in unit if e.tag in (f"{namespace}originalData", f"{namespace}ignorable", segment.tag))
        before = first.getprevious()
        notes.tail = unit.text if before is None else before.tail
        unit.insert(unit.index(first), notes)
    for old in notes.findall(f"{namespace}note[@category='{CHECK}']"):
        if old.get("id", "").startswith(mark):
            remove(old)
    for number, finding in enumerate(findings, 1):
        named = {"id": f"{mark}{number}", "category": CHECK, "appliesTo": "target"}
        note = _note(namespace, finding, named)
        if len(notes):
            insert_after(notes[-1], note)
        else:
            notes.append(note)
    if not len(notes):
        remove(notes)


def _note(namespace: str, finding: Finding, attributes: dict[str, str]) -> Any:
    note = etree.Element(f"{namespace}note", attributes)
    note.text = legal(str(finding))
    return note
