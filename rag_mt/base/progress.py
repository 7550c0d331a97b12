"""Progress bars on stderr with rate and time left."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


def progress(total: int | None, unit: str, title: str, initial: int = 0, show: bool = True) -> tqdm[Any]:
    """A bar to `update(n)` and `close()`; `total` None means that the end is not known.

    On a terminal it redraws in place; elsewhere it writes one line every ten seconds. `show` false makes it silent.
    """
    return tqdm(
        total=total,
        unit=f" {unit}",
        desc=title,
        initial=initial,
        disable=not show,
        file=sys.stderr,
        dynamic_ncols=True,
        mininterval=0.2 if sys.stderr.isatty() else 10,
        leave=True,
    )
