"""Adapters of a language model that lie beside an index, one for each source language (`rag-mt adapt`)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from rag_mt.base.files import read_json
from rag_mt.base.languages import base_code
from rag_mt.models.adapter_files import ADAPTERS, WEIGHTS
from retrievers.index.beside import local_files

log = logging.getLogger("rag_mt")

REPORT = "report.json"
"""What an adaptation writes beside its adapter."""


def index_adapters(index: Path) -> dict[str, dict[str, Any]]:
    """The reports of an index's adapters by source language."""
    return {
        path.parent.name: read_json(path)
        for path in sorted((local_files(index) / ADAPTERS).glob(f"*/{REPORT}"))
        if (path.parent / WEIGHTS).is_file()
    }


def adapter_beside(index: Path, llm: str, source: str) -> str | None:
    """The folder of an index's adapter of that language model for a source language, with or without its region; None
    if there is none, which is logged where it is one of another model."""
    index = local_files(index)
    reports = index_adapters(index)
    code = next((code for code in (source, base_code(source)) if code in reports), None)
    if code is None:
        return None
    folder, report = index / ADAPTERS / code, reports[code]
    if report["llm"] != llm:
        log.info("the adapter %s is one of %s and is not used with %s", folder, report["llm"], llm)
        return None
    log.info("translating with the adapter %s (%s); --adapter none is without it", folder, describe(report))
    return str(folder)


def describe(report: dict[str, Any]) -> str:
    """An adapter's scores, for people."""
    scores = report["scores"]
    return f"chrF {scores['chrf_before']:.1f} -> {scores['chrf']:.1f} on {report['held_out']} held-out sentences"
