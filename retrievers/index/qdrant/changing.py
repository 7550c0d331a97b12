"""Adding sentences to an index in Qdrant and taking files out of it. Qdrant keeps no versions, so that the index is
written anew in a folder for the time being and copied back, which makes it appear in one step."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.types import Sentence
from retrievers.index.beside import files_in, local_files
from retrievers.index.build import build_index
from retrievers.index.copying import Source
from retrievers.index.engines import Change
from retrievers.index.folder import write_folder
from retrievers.index.manifest import Manifest, check_kind
from retrievers.index.opening import check_settings, open_index
from retrievers.index.places import UNITS, place_text
from retrievers.index.qdrant.copying import put
from retrievers.index.qdrant.place import connected, place_of
from retrievers.index.qdrant.points import finished
from retrievers.index.qdrant.search import open_stored
from retrievers.index.vectors import form_for
from retrievers.units.unit import UnitMaker


def change_index(folder: Path, sentences: Iterable[Sentence], maker: UnitMaker, change: Change) -> Manifest:
    """Take the sentences of files out of an index in Qdrant and add others, as `build_index` does with a folder.

    Only the new sentences are encoded, but all points are read and written. Who has the index open goes on with what it
    was, and a change that is killed has changed nothing.
    Raises UserError for an index of another kind, one that others change meanwhile, and where nothing would be left.
    """
    stored, manifest = finished(folder, connected(folder))
    check_settings(folder, manifest, maker.settings)
    check_kind(folder, manifest, change.retriever, change.language, change.bm25)
    with TemporaryDirectory() as work:
        local, silent = Path(work) / "index", progress(None, "units", "", show=False)
        try:
            whole = replace(manifest, codes=None)  # its vectors are there in fp16
            source = Source(open_stored(folder, whole), files_in(local_files(folder, manifest)), silent)
            write_folder(source, local, "exact")
            changed = build_index(local, sentences, maker, **{**vars(change), "form": "exact"})
        except UserError as error:
            raise UserError(str(error).replace(str(local), str(folder))) from error
        index = open_index(local, manifest=changed)
        index.manifest = replace(changed, codes=manifest.codes, files={UNITS: manifest.files[UNITS]})
        wanted = "exact" if place_of(folder).local else form_for(change.form, changed.units, changed.unit)
        with closing(progress(changed.units, "units", f"copying {place_text(folder)}", show=change.show)) as bar:
            return put(folder, Source(index, files_in(local), bar), stored, wanted, "change")
