"""Which sentences of an index are searched: those of the files that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_mt.base.errors import NoSuchFileError
from rag_mt.base.only import Labels, Only, in_words
from retrievers.index.places import place_text

MOST_NAMED = 3
"""Files that an error names."""
ASK_OTHERWISE = "ask for others, or leave out what is asked of files"
"""What those can do who are not told which files there are."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Sentences of an index by number: `runs`, int64 (n, 2), are the first (inclusive) and the last (exclusive) of
    stretches without a gap, ascending; `files` are those that they are from."""

    files: tuple[str, ...]
    runs: NDArray[np.int64]

    @property
    def sentences(self) -> NDArray[np.int64]:
        """The numbers of the sentences, ascending."""
        return np.concatenate([np.arange(first, last) for first, last in self.runs.tolist()])


def selected(folder: Path, only: Only, column: pa.ChunkedArray, labels: Labels) -> Selection:
    """The sentences of an index that are asked for; `column` has the file of each sentence, `labels` tells what is
    known of files. Raises NoSuchFileError where no file is left, for a name or a domain that none has, and says what
    there is."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    array = encoded.combine_chunks()
    names, codes = array.dictionary.to_pylist(), array.indices.to_numpy()
    there = sorted({names[code] for code in np.unique(codes).tolist()})
    files = only.among(there, labels)
    alone = [*(Only((pattern,)) for pattern in only.files), *(Only((), (domain,)) for domain in only.domains)]
    for asked in (*alone, only):
        if not asked.among(there, labels):
            raise NoSuchFileError(
                f"index {place_text(folder)} has no file {asked}: {_what_there_is(folder, asked, there, labels)}",
                f"the index has no file {asked}: {ASK_OTHERWISE}",
            )
    wanted = np.isin(codes, [code for code, name in enumerate(names) if name in set(files)])
    edges = np.flatnonzero(np.diff(wanted.astype(np.int8), prepend=0, append=0))
    return Selection(tuple(files), edges.reshape(-1, 2))


def _what_there_is(folder: Path, only: Only, files: Sequence[str], labels: Labels) -> str:
    """What an index has of what was asked for, with what to do."""
    known = {name for label in labels.values() for name in label}
    wanted = {name for name, asked in (("domain", only.domains), ("date", only.since or only.until)) if asked}
    if missing := sorted(wanted - known):
        options = " ".join(f"--{name} {name.upper()}" for name in missing)
        command = f"rag-mt index label {place_text(folder)} FILE {options}"
        return f"no {' or '.join(missing)} of its files is known, which `{command}` tells"
    shown = (Only(only.files).among(files, {}) if wanted else []) or files
    more = f" and {len(shown) - MOST_NAMED} more" if len(shown) > MOST_NAMED else ""
    parts = [f"files {', '.join(shown[:MOST_NAMED])}{more}", *([in_words(labels)] if labels else [])]
    return f"it has {'; '.join(parts)}"
