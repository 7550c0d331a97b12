"""Text that is shown early is written once."""

from __future__ import annotations

import io

import pytest

from rag_mt.formats.opening import BOM
from rag_mt.translation.jobs import Echo


@pytest.mark.parametrize(
    ("shown", "written", "expected"),
    [
        (["Good ", "morning."], b"Good morning.\n", b"Good morning.\n"),
        (["Good"], BOM + b"Good\n", b"Good\n"),
        ([], b"\n", b"\n"),
        (["Goo"], b"Other\n", b"Goo\nOther\n"),
    ],
)
def test_what_was_shown_is_not_written_again(shown: list[str], written: bytes, expected: bytes) -> None:
    out = io.BytesIO()
    echo = Echo(out)
    for text in shown:
        echo.show(text)
    echo.write(written)
    echo.write(b"next\n")
    assert out.getvalue() == expected + b"next\n"
