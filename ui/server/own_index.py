"""The index that a server searches by default: what it is, and whether it could be reached."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from rag_mt.base.defaults import INDEX_PAUSE
from rag_mt.base.errors import AwayError, UserError

log = logging.getLogger("rag_mt")


class OwnIndex:
    """An index of the operator's, by its `folder`, which is empty where there is none. `language` and `retriever` are
    those of its manifest; they are empty as long as it was `away` since the start, when a thread looks for it every
    INDEX_PAUSE seconds and calls `reached` once it is there."""

    def __init__(self, folder: str, plain: bool, reached: Callable[[], object]) -> None:
        """Raises UserError for what is no index, and AwayError for one that is away unless `plain`."""
        self.folder, self.language, self.retriever = folder, "", ""
        self._closing = threading.Event()
        if not folder:
            return
        try:
            self._read()
        except AwayError as error:
            if not plain:
                raise
            log.warning("%s; translations are without hints until it answers", error)
            threading.Thread(target=self._look, args=(reached,), name="index", daemon=True).start()

    @property
    def away(self) -> bool:
        """Whether it has not been reached yet."""
        return bool(self.folder) and not self.retriever

    def close(self) -> None:
        """Look for it no more."""
        self._closing.set()

    def _read(self) -> None:
        from retrievers.index.manifest import read_manifest

        manifest = read_manifest(Path(self.folder))
        self.language, self.retriever = manifest.language, manifest.retriever

    def _look(self, reached: Callable[[], object]) -> None:
        """Look for the index until it is there."""
        said = ""
        while not self._closing.wait(INDEX_PAUSE):
            try:
                self._read()
            except UserError as error:
                if not isinstance(error, AwayError) and str(error) != said:
                    said = str(error)
                    log.error("%s", said)
            else:
                log.warning("index %s answers: translations have its hints", self.folder)
                reached()
                return
