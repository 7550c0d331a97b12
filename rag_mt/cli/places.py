"""What the arguments of `rag-mt translate` name: text, files or standard input, and where translations go."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rag_mt.base.console import note
from rag_mt.base.errors import UserError
from rag_mt.base.types import ELLIPSIS, Skips

STDIN, TEXT = "-", ""
"""The names of inputs that are no files of the user's."""
SEPARATORS = ("/", os.sep)


@contextmanager
def inputs_of(names: Sequence[str], skips: Skips) -> Iterator[list[tuple[Path, str]]]:
    """The input files with their names. Text and standard input are put into a temporary folder, which errors and skips
    do not name."""
    texts = [name for name in names if not names_file(name)]
    if texts and len(texts) < len(names):
        file = next(name for name in names if names_file(name))
        raise UserError(
            f"{_shown(texts[0])} is text and {file} names a file: give either text or files, and mind the spelling"
        )
    with tempfile.TemporaryDirectory(prefix="rag-mt-") as folder:
        inputs, stdin, text = [], Path(folder) / "standard input", Path(folder) / "the text"
        skips.folder = f"{folder}{os.sep}"
        if texts:
            text.write_bytes(b"".join(os.fsencode(line.rstrip("\r\n") + "\n") for line in texts))
            inputs.append((text, TEXT))
        for name in () if texts else names or [STDIN]:
            path = stdin if name == STDIN else Path(name)
            if name == STDIN:
                if sys.stdin.isatty():
                    note("reading from the terminal: end with Ctrl-D")
                with path.open("wb") as spool:
                    shutil.copyfileobj(sys.stdin.buffer, spool)
            elif not _exists(path):
                raise UserError(
                    f"input file {name} does not exist: expected a path to a text, TSV, JSONL, TMX, PO or XLIFF file"
                )
            inputs.append((path, name))
        try:
            yield inputs
        except UserError as error:
            raise UserError(str(error).replace(skips.folder, "")) from error


def names_file(name: str) -> bool:
    """Whether an argument is a file, or meant to be one: there is such a file, or it is one word with a folder or with
    a suffix that files to translate have."""
    if name == STDIN or (name and _exists(Path(name))):
        return True
    from rag_mt.formats.registry import COMPRESSED, STRUCTURED, SUFFIXES

    path, known = Path(name), {*SUFFIXES, *STRUCTURED, *COMPRESSED}
    one_word = bool(name) and not any(sign.isspace() for sign in name)
    return one_word and (any(sign in name for sign in SEPARATORS) or path.suffix.lower() in known)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a name, or with a character that none has
        return False


def _shown(text: str, most: int = 40) -> str:
    """The beginning of a text in quotes, for a message of one line."""
    line = " ".join(text.split())
    return repr(line if len(line) <= most else f"{line[:most]}{ELLIPSIS}")


def outputs_for(output: str | None, names: Sequence[str], glossaries: Sequence[str] = ()) -> list[Path | None]:
    """Where each input's translation goes; None is standard output. No output is an input or one of the glossaries."""
    if not output:
        if len(names) > 1:
            raise UserError(f"{len(names)} inputs cannot share standard output: give a folder for them with -o DIR")
        return [None]
    out = Path(output).resolve()  # a link stays, and what it points to is written
    if output.endswith(SEPARATORS) and not out.is_dir():
        if above := _in_the_way(out, *out.parents):
            raise UserError(f"-o {output} cannot be made a folder: {above} is a file or cannot be written")
    elif not out.is_dir():
        if len(names) > 1:
            raise UserError(
                f"-o {out} is not a folder: {len(names)} inputs need one; end its name with / to have it made"
            )
        if out.exists() and not out.is_file():
            raise UserError(f"-o {output} is no file: leave -o out to write to standard output")
        if not _takes_files(out.parent):
            raise UserError(f"folder {out.parent} of -o {output} does not exist or cannot be written: choose another")
        return [_apart("-o", out, [*names, *glossaries])]
    for name, source in ((STDIN, "standard input"), (TEXT, "the text")):
        if name in names:
            raise UserError(f"{source} has no name for a file in {out}: give a file with -o {out / 'NAME'}")
    paths: list[Path | None] = [_apart("-o", out / Path(name).name, [*names, *glossaries]) for name in names]
    if len(set(paths)) < len(paths):
        raise UserError(f"two inputs have the same file name: translate them into different folders, not both to {out}")
    return paths


def file_for(option: str, name: str, inputs: Iterable[str]) -> Path:
    """The file that an option says is to be written. Raises UserError for what is no file, for one that cannot be
    written and for one of the inputs, so that nothing is computed in vain and nothing of the user's is lost."""
    path = Path(name).resolve()
    if path.exists() and not path.is_file():
        raise UserError(f"{option} {name} is no file: give the name of one")
    if above := _in_the_way(*path.parents):
        raise UserError(f"{option} {name} cannot be written: {above} is a file or cannot be written; choose another")
    return _apart(option, path, inputs)


def _in_the_way(*folders: Path) -> Path | None:
    """The first of these that exists, if it is a file or a folder that cannot be written."""
    above = next(folder for folder in folders if folder.exists())
    return None if _takes_files(above) else above


def _takes_files(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK)


def _apart(option: str, output: Path, names: Iterable[str]) -> Path:
    """The output path; raises UserError if it is one of the input files themselves."""
    for name in names:
        if name not in (STDIN, TEXT) and output.exists() and _exists(Path(name)) and output.samefile(name):
            raise UserError(f"{option} {output} would overwrite the input {name}: give another file or folder")
    return output
