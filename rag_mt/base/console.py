"""What all commands share: one-sentence errors, exit codes, notes and progress bars on stderr, common options."""

from __future__ import annotations

import argparse
import atexit
import gc
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, get_args

from tqdm import tqdm

from rag_mt.base.defaults import INDEX_AWAY, LLM_CONCURRENCY, LLM_TIMEOUT, Engine
from rag_mt.base.errors import UserError
from rag_mt.base.only import Only

OK, PARTLY, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: all done; done but something was skipped or failed; the user must change something; stopped."""

WIDEST_HELP = 120
_AS_WRITTEN = re.compile(r"^([ \t]|[-|] ?\S)|^\w+:$", re.MULTILINE)
"""What tells a paragraph of help that is not to be filled: an indented line, a list, a table, a heading."""


class HelpFormatter(argparse.HelpFormatter):
    """Help whose paragraphs are filled to the width, while lists, tables and indented lines stay as they are written,
    and which names the default of every option that has one."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, WIDEST_HELP)
        super().__init__(as_called(prog), max_help_position=26, width=width - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = re.split(r"\n\s*\n", as_called(text).strip("\n"))
        return "\n\n".join(
            paragraph
            if _AS_WRITTEN.search(paragraph)
            else super(HelpFormatter, self)._fill_text(paragraph, width, indent)
            for paragraph in paragraphs
        )

    def _get_help_string(self, action: argparse.Action) -> str:
        text = as_called(action.help or "")
        default = _shown_default(action)
        if not default or "default" in text:
            return text
        return f"{text} (default: {default})" if text else f"default: {default}"


def _shown_default(action: argparse.Action) -> str:
    """An option's default as it would be typed, percent signs doubled as argparse wants them; empty if it has none."""
    if not action.option_strings or action.nargs == 0 or action.default in (None, "", argparse.SUPPRESS):
        return ""
    values = action.default if isinstance(action.default, (list, tuple)) else [action.default]
    return " ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values).replace("%", "%%")


COLLECTING = 100_000
"""After so many new objects Python looks for unreachable ones: seldom, because imports and loading make hundreds of
thousands of objects that stay, and looking through them as often as is usual takes a sixth of a short command."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence and whose help ends with `examples`, each the arguments of a
    call that it understands."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """What commands are called by the user instead of the beginnings that they have by themselves."""

    def __init__(self, prog: str | None = None, *, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(prog, **{"formatter_class": HelpFormatter, **options})
        self.examples = [f"{self.prog} {example}".strip() for example in examples]
        if examples:
            self.epilog = "\n".join(["examples:", *(f"  {example}" for example in self.examples)])

    def error(self, message: str) -> NoReturn:
        prog = as_called(self.prog)
        self.exit(WRONG_USE, f"{prog}: {message}; see `{prog} --help`\n")


def as_called(text: str) -> str:
    """A text that names commands, with the names that the user calls them by (`Parser.renamed`)."""
    for name, called in Parser.renamed.items():
        text = re.sub(re.escape(name).replace(r"\ ", r"\s+"), called, text)
    return text


def note(text: str) -> None:
    """A line on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def progress(total: int | None, unit: str, title: str, initial: int = 0, show: bool = True) -> tqdm[Any]:
    """A bar to `update(n)` and `close()`; `total` None means that the end is not known. On a terminal it redraws in
    place; elsewhere it writes one line every ten seconds. `show` false makes it silent."""
    return tqdm(
        total=total,
        unit=f" {unit}",
        desc=title,
        initial=initial,
        disable=not show,
        file=sys.stderr,
        dynamic_ncols=True,
        mininterval=0.2 if sys.stderr.isatty() else 10,
        leave=True,
    )


def run(command: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """The exit code of a command; mistakes of the user become one sentence on stderr."""
    collecting = gc.get_threshold()
    gc.set_threshold(COLLECTING, *collecting[1:])
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)  # at the end Python looks through all objects once more: for a second, and for nothing
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin while they wait burn a second core
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("rag_mt")
    before, logger.handlers = logger.handlers, [handler]
    logger.setLevel(logging.INFO)
    try:
        code = command(arguments)
        sys.stdout.flush()
        return code
    except UserError as error:
        note(f"rag-mt: {error}")
        return WRONG_USE
    except KeyboardInterrupt:
        note("rag-mt: interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone: so do we, without a word
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        note(f"rag-mt: {place}{error.strerror or error}: check the path, its permissions and the free space")
        return WRONG_USE
    finally:
        logger.handlers = before
        gc.set_threshold(*collecting)


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """`--format` and `--column` of the input files."""
    parser.add_argument("--format", default="auto", help="auto, text, tsv, jsonl, tmx, po or xliff")
    column_help = "column (number from 1, or name) of a TSV or field of a JSONL input"
    parser.add_argument("--column", default="", help=column_help)


def add_only_options(parser: argparse.ArgumentParser) -> None:
    """`--only-files`, `--only-domain`, `--since` and `--until` (see `only_of`)."""
    add = parser.add_argument
    files_help = "look only at files of the index of this name, with * for any part of it; may be given several times"
    add("--only-files", action="append", default=[], metavar="GLOB", help=files_help)
    domain_help = "look only at files of the index of this domain; may be given several times"
    add("--only-domain", action="append", default=[], metavar="NAME", help=domain_help)
    add("--since", default="", metavar="YYYY-MM-DD", help="look only at files of the index from this day on")
    add("--until", default="", metavar="YYYY-MM-DD", help="look only at files of the index up to this day")


def only_of(options: argparse.Namespace) -> Only | None:
    """Which files of an index the options ask for, None for all."""
    asked = Only(tuple(options.only_files), tuple(options.only_domain), options.since, options.until)
    return asked or None


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """`--device` and `--dtype`."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16, float16; int8 for encoders on CPUs")


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """`--ray`, `--workers` and `--threads` (see `rag_mt.base.cluster.cluster_of`)."""
    add = parser.add_argument
    ray_help = (
        "spread the work over a Ray cluster: HOST:PORT, `auto` for the one of this machine, `local` for its cores"
    )
    add("--ray", metavar="ADDRESS", help=ray_help)
    add(
        "--workers",
        type=positive,
        default=0,
        metavar="N",
        help="tasks at once in the cluster (default: by its cores or GPUs)",
    )
    add("--threads", type=positive, default=1, metavar="N", help="cores of each of these tasks")


def add_engine_option(parser: argparse.ArgumentParser) -> None:
    """`--engine`."""
    engines = f"what computes the language model: {', '.join(get_args(Engine))}"
    parser.add_argument("--engine", choices=get_args(Engine), default="auto", metavar="NAME", help=engines)


def add_away_option(parser: argparse.ArgumentParser) -> None:
    """`--index-away`: what is done while an index in LanceDB or Qdrant does not answer."""
    away_help = "while an index in LanceDB or Qdrant does not answer: stop, or translate without hints (plain)"
    parser.add_argument("--index-away", choices=INDEX_AWAY, default=INDEX_AWAY[0], help=away_help)


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """`--llm-timeout` and `--llm-concurrency`, which are for `openai:` models, and `--llm-options`."""
    add = parser.add_argument
    timeout_help = "seconds in which a model server must answer"
    add("--llm-timeout", type=positive, default=LLM_TIMEOUT, metavar="S", help=timeout_help)
    concurrency_help = "requests to a model server at once"
    add("--llm-concurrency", type=positive, default=LLM_CONCURRENCY, metavar="N", help=concurrency_help)
    options_help = "fields of requests to a model server, or chat_template_kwargs: JSON, or a file that holds it"
    add("--llm-options", type=json_object, metavar="JSON", help=options_help)


def json_object(text: str) -> dict[str, Any]:
    """An argparse type: a JSON object, or the name of a file that holds one."""
    try:
        found = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is no JSON and no file that holds any ({error})") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f'{text!r:.80} holds no fields: expected JSON such as {{"seed": 1}}')
    return found


def positive(text: str) -> int:
    """An argparse type: a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def count(text: str) -> int:
    """An argparse type: a whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def share(text: str) -> float:
    """An argparse type: a number from 0 to below 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to below 1")
    return value
