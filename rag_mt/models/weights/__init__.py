"""The weights that come with rag_mt, a folder each."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
