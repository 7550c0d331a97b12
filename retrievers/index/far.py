"""Shards of an index that the machines of a cluster make: they get sentences and give back finished shards, so that
they need no disk in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt import __version__
from rag_mt.base.cluster import Cluster
from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_folder
from rag_mt.base.types import Encoder
from retrievers.index.manifest import differences
from retrievers.index.shards import Blocks, Shard, Writer, read_shard, write_shard
from retrievers.units.unit import UnitMaker

Opener = Callable[..., UnitMaker]
Files = dict[str, NDArray[np.uint8]]
"""The bytes of a shard's files by name."""
VERSION = "rag_mt"
"""The setting that is the version of rag_mt."""


def far_writer(cluster: Cluster, opener: Opener, arguments: tuple[Any, ...], settings: Mapping[str, Any]) -> Writer:
    """A writer whose shards the cluster makes with the unit maker `opener(*arguments)`, a function of a module and
    values that can be sent; its settings must be `settings` on all machines."""

    def write(wanted: Iterable[tuple[Path, Blocks]], advance: Callable[[int], object]) -> Iterator[Shard]:
        sent, alike = cluster.everywhere(*arguments), {**settings, VERSION: __version__}
        jobs = ((place, (opener, sent, alike, blocks)) for place, blocks in wanted)
        with closing(cluster.spread(shard_files, jobs)) as results:
            for place, files in results:
                with whole_folder(place) as part:
                    for name, contents in files.items():
                        contents.tofile(part / name)
                shard = read_shard(place)
                if shard is None:
                    raise UserError(f"{place} did not arrive as it was sent: give the same command again")
                advance(shard.sentences)
                yield shard

    return write


def dtype_for_all(dtype: str, encoder: Encoder) -> str:
    """The number format by name that all machines must compute in: `auto` is what the encoder here has."""
    return dtype if dtype != "auto" else str(getattr(encoder, "dtype", dtype)).removeprefix("torch.")


def shard_files(opener: Opener, arguments: tuple[Any, ...], settings: Mapping[str, Any], blocks: Blocks) -> Files:
    """The files of the shard of some sentences."""
    maker = opened(opener, arguments)
    if different := differences(settings, {**maker.settings, VERSION: __version__}):
        raise UserError(
            f"a machine of the cluster has another version or encoder ({'; '.join(different)}): give all machines the "
            "same"
        )
    with TemporaryDirectory() as folder:
        place = Path(folder) / "shard"
        write_shard(place, blocks, maker)
        return {path.name: np.fromfile(path, dtype=np.uint8) for path in place.iterdir()}


@lru_cache(maxsize=1)
def opened(opener: Opener, arguments: tuple[Any, ...]) -> UnitMaker:
    """The unit maker, which stays for the next task."""
    return opener(*arguments)
