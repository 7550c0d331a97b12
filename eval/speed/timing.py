"""What the commands of this folder share: systems that take turns, timed functions, and the text to work on."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from rag_mt.base.console import note, positive
from rag_mt.base.errors import UserError
from rag_mt.base.files import write_json
from rag_mt.base.languages import language
from rag_mt.base.types import Sentence, Skips
from rag_mt.formats.opening import read_lines
from rag_mt.formats.reading import read_sentences

Output = TypeVar("Output")


def add_measuring_options(parser: argparse.ArgumentParser, sentences: int) -> None:
    """How much is searched for, by default so many sentences, and how often."""
    add = parser.add_argument
    add("--sentences", type=positive, default=sentences, metavar="N", help="sentences to search for")
    add("--rounds", type=positive, default=3, metavar="N", help="times that each is measured")


def table_row(values: Iterable[object], widths: Iterable[int]) -> str:
    """A line of a table, its columns so wide and to the right."""
    return "".join(f"{value!s:>{width}}" for value, width in zip(values, widths, strict=True))


def by_turns(systems: Mapping[str, Callable[[], Output]], rounds: int) -> dict[str, tuple[list[float], Output]]:
    """The seconds of each round and the last output, by the name of the system. They run in turn, so that what else the
    machine does slows all alike; loading and warming up is left to the caller."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    outputs: dict[str, Output] = {}
    for _ in range(rounds):
        for name, system in systems.items():
            begin = time.perf_counter()
            outputs[name] = system()
            seconds[name].append(time.perf_counter() - begin)
    return {name: (seconds[name], outputs[name]) for name in systems}


def timed(seconds: dict[str, float], part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, adding its wall time to `seconds[part]`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        output = function(*args, **kwargs)
        seconds[part] = seconds.get(part, 0) + time.perf_counter() - begin
        return output

    return call


def resource_module() -> Any:
    """The module that tells what programs took of the machine; raises UserError where the system does not tell."""
    try:
        import resource
    except ModuleNotFoundError:
        raise UserError("this system does not tell what its programs took: measure on Linux or macOS") from None
    return resource


def peak_bytes(used: Any) -> int:
    """The peak of memory in what `resource` tells, which counts kilobytes except on macOS."""
    return int(used.ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """`--output`, where `write_results` writes."""
    help_text = "also write what was measured to a JSON file, which `python -m eval.figures` draws"
    parser.add_argument("--output", type=Path, metavar="FILE", help=help_text)


def write_results(output: Path | None, command: str, facts: Mapping[str, Any], results: list[dict[str, Any]]) -> None:
    """Write what a command measured, a row for each system, to a JSON file if one was asked for, with the facts that
    hold for all rows and the versions of what was measured."""
    if output is None:
        return
    import torch
    import transformers

    machine = {"processor": platform.machine(), "threads": torch.get_num_threads()}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    output.parent.mkdir(parents=True, exist_ok=True)
    write_json(output, {"command": command, **machine, **facts, "versions": versions, "results": results})
    note(f"written to {output}")


def add_text_options(parser: argparse.ArgumentParser, retriever: str) -> None:
    """The files to translate, their languages and the retriever."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="text in the source language")
    parser.add_argument("--src", required=True, metavar="LANG", help="its language")
    parser.add_argument("--tgt", default="en", metavar="LANG", help="language of the translation")
    parser.add_argument("--column", default="", help="column of a TSV or field of a JSONL file")
    parser.add_argument(
        "--retriever", default=retriever, metavar="NAME", help="what finds hints, as for rag-mt translate"
    )


def read_text(options: argparse.Namespace, warm_up: int, too_few: str) -> tuple[list[Sentence], list[Sentence]]:
    """The first `warm_up` sentences of the files, and up to `--limit` more. Raises UserError if there are no more."""
    code = language(options.src).code
    available = read_sentences(options.files, code, column=options.column, skips=Skips())
    sentences = list(islice(available, warm_up + options.limit))
    if len(sentences) <= warm_up:
        raise UserError(f"{len(sentences)} sentences are {too_few}")
    return sentences[:warm_up], sentences[warm_up:]


def distinct_lines(path: Path) -> list[str]:
    """The lines of a file that are not blank, each different one once."""
    lines = (line.text or "" for line in read_lines(path, Skips(shown=0)))
    return list(dict.fromkeys(text for text in lines if text.strip()))
