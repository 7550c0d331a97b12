"""Build, inspect, verify, calibrate and search indexes of target-language text."""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_mt.base.cluster import cluster_of
from rag_mt.base.console import (
    OK,
    PARTLY,
    add_cluster_options,
    add_model_options,
    add_only_options,
    add_reading_options,
    note,
    only_of,
    positive,
    share,
)
from rag_mt.base.defaults import BITS, INDEX_RETRIEVER, SEARCHING, SHARD
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.only import Label
from rag_mt.base.types import NO_LETTERS, Skips

DESCRIPTION = """Build, inspect, verify and calibrate indexes.

An index is a folder of text in the target language, whose sentences, phrases or passages are shown to the language
model as hints."""
EXAMPLES = ("build my-index letters/ manual.tmx --lang en", "info my-index", "verify my-index")
SEARCH = (
    "Show the hints that sentences would get from an index: score, source phrase, hint, the hint in its context, and "
    "the file and line that it comes from, with tabs between them.",
    ('--index my-index --src de "Der Stadtrat hat eine neue Brücke beschlossen."',),
)
"""The description of the verb, and examples of it."""
BUILD = """Make an index of text in the target language, from files, folders of files and data sets of the hub.

The text is split into sentences, and what the retriever searches is encoded and stored in the folder. An interrupted
build goes on with the same command."""
BUILD_EXAMPLES = ("my-index letters/ --lang en", "my-index glossary.tsv --lang de --column German --retriever sentence")
ADD = """Add files to an index, or the new text of files that it has.

Only these files are encoded; what the index has of others stays, and so do its cut-offs and adapters. The index is
replaced in one step, and an interrupted command goes on when it is given again."""
REMOVE = """Take the text of files out of an index; `rag-mt index info DIR --files` names them.

A sentence that several files have is stored once, with the first of them, and goes with that one: add the others again
to have it back."""
LABEL = """Say of files of an index which domain they are of and which day they are from.

`rag-mt search` and `rag-mt translate` can then look at some of them only (--only-domain, --since, --until). Nothing is
encoded, and the index can be in use meanwhile. `rag-mt index info DIR --files` shows what is known."""
LABEL_EXAMPLES = ("my-index 'letters/2024/*' --domain law --date 2024-12-31",)
COPY = """Copy an index into LanceDB or Qdrant, engines of others for vectors, or back into a folder.

LanceDB keeps it in a folder (lance:FOLDER) or an object store (lance:s3://BUCKET/FOLDER), Qdrant in a folder
(qdrant:FOLDER), for trying out, or in a server (qdrant:http://HOST:6333/NAME). That place is then given wherever the
folder of an index is: translation, search, calibrate, add, remove. It needs the package: pip install 'rag-mt[lance]'
or 'rag-mt[qdrant]'. An index there is copied into a folder, or from one engine to another, likewise. A command that is
killed has changed nothing, and starts again."""
COPY_EXAMPLES = (
    "my-index lance:my-index.lance",
    "my-index qdrant:http://localhost:6333/my-index",
    "lance:s3://bucket/my-index my-index",
)
COMPRESS = """Store the numbers of vectors in fewer bits than the 16 that they have at first.

With 8 bits search finds nearly the same, with 4 and 2 less and less. With --rerank the best hits are compared as
before; the vectors then stay in 16 bits as well. With 4 and 2 bits only the nearest lists of vectors are searched.
Sentences, cut-offs and adapters stay as they are."""
INFO = "Show what an index holds: language, retriever, encoder, numbers of sentences and vectors, cut-offs, adapters."
VERIFY = """Compare every byte of an index with the checksums of its manifest.

Of an index in LanceDB or Qdrant, which have none: that all rows are there, and that they agree with each other."""
CALIBRATE = """Store the score below which hints for a source language are not shown.

It is chosen on development text of that language, which needs no translation: so that a share of the best hits of its
sentences is dropped (--drop). An index of ccpr needs no such text, because its model says how sure it is; --confidence
sets how sure it must be."""
CALIBRATE_EXAMPLES = ("my-index dev.de.txt --src de --drop 0.25", "my-index --src de --confidence 0.5")

if TYPE_CHECKING:
    from rag_mt.translation.index import Index


def build(options: argparse.Namespace) -> int:
    """`rag-mt index build`: target-language text into an index folder."""
    from rag_mt.translation.index import Index

    names = ("retriever", "encoder", "device", "dtype", "format", "column", "replace", "restart", "form")
    Label(options.domain, options.date)  # what is none is refused now
    settings: dict[str, Any] = {name: getattr(options, name) for name in names}
    settings |= {key: getattr(options, key) for key in ("k1", "b", "alpha") if getattr(options, key) is not None}
    settings |= {"split": not options.no_split, "show": not options.quiet, "language": options.lang}
    if options.shard is not None:
        return _build_part(options, settings)
    settings |= {"cluster": cluster_of(options), "shard": options.shard_size}
    settings |= {"domain": options.domain, "date": options.date}
    index = Index.build(options.folder, options.files, **settings)
    note(index.describe())
    return _told(index.skips)


def _told(skips: Skips) -> int:
    """Tell how many lines were skipped, and return the exit code that says whether any of them held text."""
    if skips.counts:
        note(skips.summary())
    return PARTLY if set(skips.counts) - {NO_LETTERS} else OK


def _build_part(options: argparse.Namespace, settings: dict[str, Any]) -> int:
    """Encode a part of the text of an index."""
    from rag_mt.translation.index import Index

    if settings.pop("restart"):
        raise UserError(
            f"--shard makes a part, and --restart would forget those of others: delete {options.folder}.building"
        )
    if cluster_of(options):
        raise UserError("--shard is for processes that share the work without --ray: give one of the two")
    settings.pop("form")
    number, of = options.shard
    part = Index.build_part(options.folder, options.files, (number, of), shard=options.shard_size, **settings)
    note(
        f"part {number} of {of}: {part[0]} sentences are encoded, {part[1]} of them before; the same command without "
        "--shard puts the parts together"
    )
    return OK


def share_of(text: str) -> tuple[int, int]:
    """An argparse type: a part of several, such as 2/8."""
    number, slash, of = text.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part such as 2/8")
    return int(number), int(of)


def grow(options: argparse.Namespace) -> int:
    """`rag-mt index add`: more text into an index."""
    index, show = _opened(options.folder, options), not options.quiet
    before = index.sentences
    names = ("format", "column", "restart", "domain", "date")
    index.add(options.files, split=not options.no_split, show=show, **{name: getattr(options, name) for name in names})
    note(f"{index.describe()}; {before} sentences before")
    return _told(index.skips)


def shrink(options: argparse.Namespace) -> int:
    """`rag-mt index remove`: files out of an index."""
    index = _opened(options.folder, options)
    before = index.sentences
    index.remove(options.files, restart=options.restart, show=not options.quiet)
    note(f"{index.describe()}; {before} sentences before")
    return OK


def label(options: argparse.Namespace) -> int:
    """`rag-mt index label`: the domain and the date of files of an index."""
    from rag_mt.translation.index_files import IndexFiles

    index = IndexFiles.open(options.folder)
    names = index.label(options.files, domain=options.domain, date=options.date)
    said = [f"{what} {value or 'none'}" for what in ("domain", "date") if (value := getattr(options, what)) is not None]
    note(f"{options.folder}: {' and '.join(said)} for {len(names)} of {len(index.files)} files")
    return OK


def copy(options: argparse.Namespace) -> int:
    """`rag-mt index copy`: an index into LanceDB or Qdrant, or back."""
    from rag_mt.translation.index_files import IndexFiles

    if options.target == "qdrant::memory:":
        raise UserError(f"a copy in {options.target} would be gone with this command: give qdrant:FOLDER")
    index = IndexFiles.open(options.folder)
    note(index.copy(options.target, replace=options.replace, form=options.form, show=not options.quiet).describe())
    return OK


def compress(options: argparse.Namespace) -> int:
    """`rag-mt index compress`: the vectors of an index in fewer bits."""
    from rag_mt.translation.index_files import IndexFiles

    index = IndexFiles.open(options.folder)
    index.compress(options.bits, rerank=options.rerank, show=not options.quiet)
    note(index.describe())
    if index.manifest.lossy and index.manifest.thresholds:
        note("cut-offs were chosen with whole vectors: `rag-mt index calibrate` chooses them anew")
    return OK


def info(options: argparse.Namespace) -> int:
    """`rag-mt index info`: the manifest, readable or as JSON."""
    from rag_mt.translation.index_files import IndexFiles

    begin = time.perf_counter()
    index = IndexFiles.open(options.folder)
    milliseconds = (time.perf_counter() - begin) * 1000
    if options.json:
        print(json.dumps(index.manifest.as_dict(), ensure_ascii=False, indent=2))
    else:
        print("\n".join([index.manifest.describe(), *index.adapters, f"opened in {milliseconds:.0f} ms"]))
        for name, number in index.files.items() if options.files else ():
            label = index.labels.get(name, {})
            print("\t".join([str(number), name, *([label.get("domain", ""), label.get("date", "")] if label else [])]))
    return OK


def verify(options: argparse.Namespace) -> int:
    """`rag-mt index verify`: every byte against the manifest."""
    from retrievers.index.verifying import verify_index

    for line in verify_index(Path(options.folder)):
        print(line)
    return OK


def calibrate(options: argparse.Namespace) -> int:
    """`rag-mt index calibrate`: store the score below which hints of a source language are not shown."""
    from rag_mt.formats.reading import read_sentences

    if options.confidence is None and not options.files:
        raise UserError("no development text is given: name a FILE to choose the cut-off on, or give --confidence")
    if options.confidence is not None and options.files:
        raise UserError("--confidence says what is shown, so that nothing is left to calibrate: give no FILE with it")
    source, index = language(options.src), _opened(options.folder, options)
    if options.confidence is not None:
        cut_off = index.calibrate(source.code, confidence=options.confidence)
        print(f"{index.folder}: hints for {source.name} with a confidence below {cut_off:g} are dropped")
        return OK
    skips = Skips()
    sentences = read_sentences(options.files, source.code, format=options.format, column=options.column, skips=skips)
    texts = [sentence.text for sentence in islice(sentences, options.limit)]
    if not texts:
        _told(skips)
        raise UserError(f"no {source.name} sentence in {', '.join(options.files)}: expected development text")
    cut_off = index.calibrate(source.code, texts=texts, drop=options.drop)
    basis = f"({len(texts)} sentences, drop {options.drop:g})"
    print(f"{index.folder}: hints for {source.name} below {cut_off:.4f} are dropped {basis}")
    return _told(skips)


def search(options: argparse.Namespace) -> int:
    """`rag-mt search`: the hints that sentences get, with score, context and origin."""
    index, source = _opened(options.index, options), language(options.src).code
    try:
        lines = options.text or sys.stdin.buffer.read().decode("utf-8").splitlines()
        texts = [text.strip() for text in lines if text.strip() and text.encode("utf-8")]
    except UnicodeError:
        origin = "the text to search for" if options.text else "standard input"
        raise UserError(f"{origin} is not valid UTF-8: convert it with `iconv -t utf-8`") from None
    for text, hints in zip(texts, index.search(texts, source, only_of(options)), strict=True):
        for hint in hints:
            context = " ".join(hint.context().marked("[[", "]]").splitlines())
            print(
                f"{hint.hit.score:.4f}\t{hint.source_span.of(text)}\t{hint.phrase}\t{context}\t{hint.hit.sentence.source}"
            )
        if not hints:
            note(f"no hint is trusted for: {text}")
    return OK


def _opened(folder: str, options: argparse.Namespace) -> Index:
    """The index, with the encoder that was asked for or the one that it was built with."""
    from rag_mt.translation.index import Index

    return Index.open(folder, encoder=options.encoder or None, device=options.device, dtype=options.dtype)


def add_actions(index: argparse.ArgumentParser) -> None:
    """The actions of `rag-mt index` with their options."""
    actions = index.add_subparsers(dest="action", required=True, metavar="ACTION")

    add = actions.add_parser("build", help="index target-language text", description=BUILD, examples=BUILD_EXAMPLES)
    add.set_defaults(run=build)
    add.add_argument("folder", metavar="DIR", help="folder of the new index")
    add.add_argument(
        "files", nargs="+", metavar="FILE", help="files, folders, URLs or hf: data sets of target-language text"
    )
    add.add_argument("--lang", required=True, metavar="LANG", help="language of the text")
    add.add_argument("--retriever", default=INDEX_RETRIEVER, metavar="NAME", help=SEARCHING)
    encoder_help = "encoder or phrase model: a name, a hub id or a folder (default: the retriever's)"
    add.add_argument("--encoder", metavar="ID", help=encoder_help)
    add.add_argument("--no-split", action="store_true", help="every line or cell is one sentence already")
    add.add_argument("--replace", action="store_true", help="put the new index in the place of an existing one")
    add.add_argument("--restart", action="store_true", help="forget the finished part of an interrupted build")
    add.add_argument("--quiet", action="store_true", help="no progress bar")
    form_help = "search every vector (exact) or the nearest lists of them (ivf); auto goes by their number"
    add.add_argument("--form", choices=("auto", "exact", "ivf"), default="auto", help=form_help)
    shard_help = "encode only the n-th of m parts; the command without --shard puts them together"
    add.add_argument("--shard", type=share_of, metavar="N/M", help=shard_help)
    size_help = "sentences that are encoded and stored at once, in whole blocks (default: %(default)s)"
    add.add_argument("--shard-size", type=positive, default=SHARD, metavar="N", help=size_help)
    add_cluster_options(add)
    add.add_argument("--k1", type=float, metavar="X", help="worth of repeated terms (memory, bm25, hybrid)")
    add.add_argument("--b", type=float, metavar="X", help="discount of long texts (memory, bm25, hybrid)")
    add.add_argument("--alpha", type=float, metavar="X", help="weight of BM25 (hybrid)")
    _add_label_options(add, "")
    add_reading_options(add)
    add_model_options(add)

    add = actions.add_parser(
        "add", help="add files to an index", description=ADD, examples=("my-index letters/2027/", "my-index new.tmx")
    )
    add.add_argument("folder", metavar="DIR", help="folder of the index")
    add.add_argument(
        "files", nargs="+", metavar="FILE", help="files, folders, URLs or hf: data sets of target-language text"
    )
    add.add_argument("--no-split", action="store_true", help="every line or cell is one sentence already")
    _add_changing_options(add)
    _add_label_options(add, "")
    add_reading_options(add)
    add.set_defaults(run=grow)

    add = actions.add_parser(
        "remove", help="take files out of an index", description=REMOVE, examples=("my-index letters/old.txt",)
    )
    add.add_argument("folder", metavar="DIR", help="folder of the index")
    add.add_argument("files", nargs="+", metavar="FILE", help="files of the index")
    _add_changing_options(add)
    add.set_defaults(run=shrink)

    add = actions.add_parser(
        "label", help="say which domain and date files have", description=LABEL, examples=LABEL_EXAMPLES
    )
    add.add_argument("folder", metavar="DIR", help="folder of the index")
    files_help = "files of the index, with * for any part of a name (quote it)"
    add.add_argument("files", nargs="+", metavar="FILE", help=files_help)
    _add_label_options(add, None)
    add.set_defaults(run=label)

    add = actions.add_parser(
        "copy", help="copy an index into LanceDB or Qdrant, or back", description=COPY, examples=COPY_EXAMPLES
    )
    add.add_argument("folder", metavar="DIR", help="folder or place of the index")
    add.add_argument("target", metavar="PLACE", help="where the copy is to be: lance:URI, qdrant:WHERE or a folder")
    add.add_argument("--replace", action="store_true", help="put the copy in the place of an existing one")
    add.add_argument("--form", choices=("auto", "exact", "ivf"), default="auto", help=form_help)
    add.add_argument("--quiet", action="store_true", help="no progress bar")
    add.set_defaults(run=copy)

    add = actions.add_parser(
        "compress", help="store vectors in fewer bits", description=COMPRESS, examples=("my-index --bits 4 --rerank",)
    )
    add.add_argument("folder", metavar="DIR", help="folder of the index")
    add.add_argument("--bits", type=int, choices=BITS, required=True, help="bits of each number of a vector")
    add.add_argument("--rerank", action="store_true", help="keep the vectors in 16 bits, too, to compare the best hits")
    add.add_argument("--quiet", action="store_true", help="no progress bar")
    add.set_defaults(run=compress)

    add = actions.add_parser(
        "info", help="what an index holds", description=INFO, examples=("my-index", "my-index --json")
    )
    add.add_argument("folder", metavar="DIR", help="folder of the index")
    add.add_argument("--json", action="store_true", help="the manifest as JSON")
    add.add_argument("--files", action="store_true", help="its files too, with the number of sentences of each")
    add.set_defaults(run=info)

    add = actions.add_parser("verify", help="check every byte of an index", description=VERIFY, examples=("my-index",))
    add.add_argument("folder", metavar="DIR", help="folder of the index")
    add.set_defaults(run=verify)

    add = actions.add_parser(
        "calibrate", help="choose a score cut-off on dev text", description=CALIBRATE, examples=CALIBRATE_EXAMPLES
    )
    add.add_argument("folder", metavar="DIR", help="folder of the index")
    add.add_argument("files", nargs="*", metavar="FILE", help="development text in the source language")
    add.add_argument("--src", required=True, metavar="LANG", help="language of the development text")
    add.add_argument("--drop", type=share, default=0.25, metavar="SHARE", help="share of the hits to drop")
    confidence_help = "show hints of at least this confidence (ccpr), without any FILE"
    add.add_argument("--confidence", type=share, metavar="X", help=confidence_help)
    add.add_argument("--limit", type=positive, default=1000, metavar="N", help="sentences to use")
    add.add_argument(
        "--encoder", default="", metavar="ID", help="encoder to use (default: the one that the index was built with)"
    )
    add_reading_options(add)
    add_model_options(add)
    add.set_defaults(run=calibrate)


def _add_label_options(parser: argparse.ArgumentParser, default: str | None) -> None:
    """`--domain` and `--date`, by which files can be chosen when the index is searched."""
    taken = "" if default is not None else "; empty takes it away"
    domain_help = f"domain of the files, which searches can be told to look at alone{taken}"
    parser.add_argument("--domain", default=default, metavar="NAME", help=domain_help)
    parser.add_argument("--date", default=default, metavar="YYYY-MM-DD", help=f"day that the files are from{taken}")


def _add_changing_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--restart", action="store_true", help="forget the finished part of an interrupted change")
    parser.add_argument(
        "--encoder", default="", metavar="ID", help="encoder to use (default: the one that the index was built with)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_model_options(parser)


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """All options of `rag-mt search`."""
    parser.add_argument("text", nargs="*", metavar="TEXT", help="sentences (default: lines of standard input)")
    parser.add_argument("--index", required=True, metavar="DIR", help="index to search")
    parser.add_argument("--src", required=True, metavar="LANG", help="language of the sentences")
    add_only_options(parser)
    parser.add_argument(
        "--encoder", default="", metavar="ID", help="encoder to use (default: the one that the index was built with)"
    )
    add_model_options(parser)
