"""How large files are, and how people read that."""

from __future__ import annotations

from pathlib import Path


def size(count: int) -> str:
    """A number of bytes as people read it: 820 MB."""
    number, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        number, unit = number / 1000, larger
    return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"


def bytes_below(path: Path) -> int:
    """The size of a file, or of all files below a folder; what vanishes meanwhile counts for nothing."""
    total = 0
    for file in [path] if path.is_file() else path.rglob("*"):
        try:
            total += file.lstat().st_size if not file.is_dir() else 0
        except OSError:
            continue
    return total
