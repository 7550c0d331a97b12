"""Qdrant as an engine of indexes (see `retrievers.index.engines`)."""

from retrievers.index.qdrant.changing import change_index
from retrievers.index.qdrant.copying import write_copy
from retrievers.index.qdrant.points import change_stored, stored_files, stored_manifest
from retrievers.index.qdrant.search import open_stored

__all__ = ["change_index", "change_stored", "open_stored", "stored_files", "stored_manifest", "write_copy"]
