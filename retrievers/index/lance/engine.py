"""LanceDB as an engine of indexes (see `retrievers.index.engines`)."""

from retrievers.index.lance.changing import change_index
from retrievers.index.lance.copying import write_copy
from retrievers.index.lance.files import stored_files
from retrievers.index.lance.search import open_stored
from retrievers.index.lance.tables import change_stored, stored_manifest

__all__ = ["change_index", "change_stored", "open_stored", "stored_files", "stored_manifest", "write_copy"]
