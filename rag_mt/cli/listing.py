"""What there is: `rag-mt list models|retrievers|languages|indexes|configs`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from rag_mt.base.console import OK
from rag_mt.base.defaults import DEFAULT_ENCODER, DEFAULT_PASSAGE_MODEL, DEFAULT_PHRASE_MODEL, DEFAULT_XPR_MODEL
from rag_mt.base.errors import UserError
from rag_mt.base.files import cache_dir, read_json
from rag_mt.base.languages import WMT16, language
from rag_mt.base.sizes import bytes_below
from rag_mt.cli.tables import Row, show

DESCRIPTION = """List what can be named in other commands.

- models: language models, encoders and trained weights that need no hub, with licence, and whether they are installed,
  unpacked in the cache, and how large they are; any hub id or folder of a model can be named too
- retrievers: what finds hints, and by which model
- languages: those of the sample corpus and the trained weights; any other can be named by its code or English name
- indexes: sample indexes in the cache, and those that the folders named, or the current one, are or hold; one in
  LanceDB or Qdrant is named by its place
- configs: settings that come with rag_mt, for `--config NAME` of `rag-mt train` and `rag-mt eval`"""
EXAMPLES = ("models", "indexes my-indexes/ --json")

ENGINES = ("lance:", "qdrant:")
"""How places of indexes in engines begin: `retrievers.index.places` in words, without loading it."""
RETRIEVERS = (
    ("none", "nothing: translation without hints", ""),
    ("sentence", "similar sentences", DEFAULT_ENCODER),
    ("memory", "sentences that are similar to a first translation, where they help it", DEFAULT_ENCODER),
    ("phrases", "spans of up to four words, by an encoder without training", DEFAULT_ENCODER),
    ("ccpr", "phrases in their context (CCPR), by a trained model that knows how sure it is", DEFAULT_PHRASE_MODEL),
    ("xpr", "phrases by example sentences (XPR)", DEFAULT_XPR_MODEL),
    ("passage", "passages about the same things (mDPR)", DEFAULT_PASSAGE_MODEL),
    ("bm25", "passages that share names, numbers and loan words, without a model", ""),
    ("hybrid", "passages by mDPR and BM25 together", DEFAULT_PASSAGE_MODEL),
)
"""Name, what is found, and the model that finds it: `retrievers.registry` in words, without loading it."""


def models() -> list[Row]:
    """The embedded models, and the weights that come with rag_mt."""
    from rag_mt.models import weights
    from rag_mt.models.offline.embedded import EMBEDDED, PREFIX

    rows: list[Row] = []
    for name, spec in EMBEDDED.items():
        unpacked = spec.made(name)
        packed = spec.gguf_bytes or spec.megabytes * 1_000_000
        count = sum(map(bytes_below, unpacked)) if unpacked else packed
        state = {"installed": spec.installed, "unpacked": bool(unpacked), "bytes": count}
        rows.append({"name": PREFIX + name, "purpose": spec.purpose, "licence": spec.licence, **state})
    for name, model in weights.shipped_models().items():
        folder = weights.FOLDER / name
        row: Row = {"name": name, "purpose": model.job, "licence": model.licence}
        rows.append({**row, "installed": folder.is_dir(), "unpacked": None, "bytes": bytes_below(folder)})
    return rows


def retrievers() -> list[Row]:
    """The retrieval systems."""
    return [{"name": name, "finds": finds, "model": model} for name, finds, model in RETRIEVERS]


def languages() -> list[Row]:
    """The languages that everything is there for."""
    known = [language(code) for code in ("en", *WMT16)]
    return [{"code": each.code, "name": each.name, "native": each.native} for each in known]


def indexes(folders: Iterable[Path]) -> list[Row]:
    """The sample indexes of the cache, and the indexes that the folders are or hold. Raises UserError for a folder that
    does not exist."""
    sample = cache_dir() / "indexes"
    rows: list[Row] = []
    for place in (sample, *folders):
        if place.as_posix().startswith(ENGINES):
            rows.append(_in_engine(place))
            continue
        if place != sample and not place.is_dir():
            raise UserError(f"there is no folder {place}: name an index, or a folder that holds indexes")
        below = sorted(place.iterdir()) if place.is_dir() else []
        for folder in (place, *(path for path in below if path.is_dir())):
            if not (folder / "manifest.json").is_file():
                continue
            manifest = read_json(folder / "manifest.json")
            if not (isinstance(manifest, dict) and {"retriever", "language", "sentences"} <= manifest.keys()):
                continue  # training data has manifests too
            row = {"index": str(folder), "kind": "sample" if place == sample else "own"}
            row |= {key: manifest[key] for key in ("language", "retriever", "sentences")}
            rows.append(row | {"bytes": bytes_below(folder)})
    return rows


def _in_engine(place: Path) -> Row:
    """The index in a place of LanceDB or Qdrant, whose size is not known. Raises UserError where there is none."""
    from retrievers.index.manifest import read_manifest
    from retrievers.index.places import place_text

    manifest = read_manifest(place)
    row: Row = {"index": place_text(place), "kind": "own", "language": manifest.language}
    return {**row, "retriever": manifest.retriever, "sentences": manifest.sentences, "bytes": None}


def configs() -> list[Row]:
    """The settings that come with rag_mt."""
    from rag_mt.base.settings import config_file, shipped_configs

    rows: list[Row] = []
    for name in shipped_configs():
        begin = config_file(name).read_text(encoding="utf-8").split("\n[")[0]
        remark = " ".join(line.lstrip("# ") for line in begin.splitlines() if line.startswith("#"))
        rows.append({"name": name, "purpose": re.split(r"(?<=[.:;]) ", remark)[0].rstrip(".:;")})
    return rows


LISTS: dict[str, Callable[[], list[Row]]] = {
    "models": models,
    "retrievers": retrievers,
    "languages": languages,
    "configs": configs,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options of the command."""
    names = sorted([*LISTS, "indexes"])
    parser.add_argument("what", choices=names, metavar="WHAT", help=", ".join(names))
    folders_help = "where `indexes` looks (default: here)"
    parser.add_argument("folders", nargs="*", default=[], metavar="DIR", help=folders_help)
    parser.add_argument("--json", action="store_true", help="print JSON, sizes in bytes")


def list_(options: argparse.Namespace) -> int:
    """Print one of the lists; returns the exit code."""
    if options.folders and options.what != "indexes":
        raise UserError(
            f"{options.folders[0]} is no part of the {options.what}: only `rag-mt list indexes` looks there"
        )
    if options.what == "indexes":
        rows = indexes(Path(name) for name in options.folders or ["."])
    else:
        rows = LISTS[options.what]()
    show(rows, options.json, "there is none here: `rag-mt index build DIR FILE --lang LANG` makes one")
    return OK
