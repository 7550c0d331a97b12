"""Lists for people, as aligned columns, and for programs, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rag_mt.base.sizes import size

Row = Mapping[str, Any]


def show(rows: Sequence[Row], as_json: bool, none: str) -> None:
    """Print rows of the same keys on stdout, sizes in bytes; `none` is what to say to people if there are none."""
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        print(aligned(rows) if rows else none)


def aligned(rows: Sequence[Row]) -> str:
    """Rows as columns below their keys. Under `bytes` stands a size in units that people read."""
    keys = list(rows[0])
    lines = [["size" if key == "bytes" else key.replace("_", " ") for key in keys]]
    lines += [[_cell(key, row[key]) for key in keys] for row in rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(keys) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )


def _cell(key: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return size(value) if key == "bytes" else str(value)
