"""The fenced blocks of the documentation: found by their markers, and run where starting a process is not needed.

A marker stands on the line before a fence of `bash` or `python`:

    <!-- run -->        run by the ordinary tests
    <!-- run: slow -->  run by the tests that are marked slow
    <!-- run: hub -->   needs a model hub, a GPU or the network: run too, and may end with exit code 2 and one sentence
    <!-- served -->     curl lines, run against a server
    <!-- setup -->      set-up lines only (see `SET_UP`)
    <!-- output -->     before a fence of `text` that follows a block: what that block prints
"""

from __future__ import annotations

import contextlib
import difflib
import io
import logging
import os
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.cli.main import main

ROOT = Path(__file__).parents[1]
MARKERS = ("run", "run: slow", "run: hub", "served", "setup")
PACKAGES = ("rag_mt", "retrievers", "prompts", "finetune", "eval", "ui")
WRONG_USE = 2
ALIKE = 0.8
"""The least `difflib` ratio of shown and real output: another processor may round a score or a word differently."""

SET_UP = re.compile(
    r"(make |git clone |cd |\. \S+activate|python3\.11 -m venv |(\S*python -m )?pip3? install |\.venv\S*/bin/)"
)
"""Lines that install: compared with the Makefile and pyproject.toml, and never run."""

_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_MARKER = re.compile(r"<!-- (.+) -->$")
_NEEDS_BASH = re.compile(r"^\s*(for|while|until|if|case|set)\b|\$\(|`|\$\{", re.MULTILINE)
_PROGRESS = re.compile(
    r"^[^|]*(\d+%\|.*?)?\[(\d+:)?\d\d:\d\d[<,][^\]]*\]|^loading models: .*|^embedded:\S+: (unpacking|joining|ready) .*"
)
"""A progress bar, behind which the next output may stand in the same line where there is no terminal; what is said
while models are unpacked and loaded."""

_CHANGING = re.compile(r"\b\d+(\.\d+)? (ms|s)\b|\b[0-9a-f]{16,}\b")
"""Times, and ids that are drawn."""


@dataclass(frozen=True)
class Block:
    """A fenced block: the page and line it stands at, its marker (empty if it has none) and the output shown for it."""

    page: Path
    line: int
    marker: str
    language: str
    code: str
    output: str | None = None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}\n{self.code}"


def pages() -> list[Path]:
    """The README and the pages of the manual."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The bash and python blocks of a page, in order."""
    text, result = page.read_text(encoding="utf-8"), []
    matches = list(_FENCE.finditer(text))
    for number, match in enumerate(matches):
        if match[2] not in ("bash", "python"):
            continue
        following, output = matches[number + 1 : number + 2], None
        if following and following[0][2] == "text":
            between = text[match.end() : following[0].start()].strip()
            output = textwrap.dedent(following[0][3]) if between == "<!-- output -->" else None
        line = text.count("\n", 0, match.start()) + 1
        result.append(Block(page, line, _marker(text[: match.start()]), match[2], textwrap.dedent(match[3]), output))
    return result


def _marker(before: str) -> str:
    last = before.removesuffix("\n").rpartition("\n")[2].strip()
    match = _MARKER.match(last)
    return match[1] if match and match[1] in MARKERS else ""


@dataclass
class Result:
    """What a command wrote, to stdout, to stderr and to both in the order of writing, and its exit code."""

    code: int
    stdout: str
    stderr: str
    both: str


class _Part(io.BytesIO):
    """One stream of two: what is written to it goes to the common one too."""

    def __init__(self, both: io.BytesIO) -> None:
        super().__init__()
        self._both = both

    def write(self, content: Any, /) -> int:
        self._both.write(content)
        return super().write(content)


@contextlib.contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[_Part, _Part, io.BytesIO]]:
    """Standard input, output and error of this process replaced."""
    both = io.BytesIO()
    out, err = _Part(both), _Part(both)
    before = sys.stdin, sys.stdout, sys.stderr
    logger = logging.getLogger("rag_mt")  # a command logs to the stderr of its time
    logged = logger.handlers, logger.level
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", write_through=True, errors="backslashreplace")
    wrappers = sys.stdout, sys.stderr
    try:
        yield out, err, both
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        logger.handlers = logged[0]
        logger.setLevel(logged[1])
        for wrapper in wrappers:
            wrapper.flush()
            wrapper.detach()  # else the buffer would be closed with it


def _captured(action: Any, folder: Path, stdin: bytes = b"") -> Result:
    """Call `action` in a folder; its return value or SystemExit is the exit code, a UserError 2, another error 1."""
    with contextlib.chdir(folder), _streams(stdin) as (out, err, both):
        try:
            code = action()
        except SystemExit as end:
            code = end.code
            if isinstance(code, str):
                print(code, file=sys.stderr)
                code = 1
        except UserError as error:
            print(error, file=sys.stderr)
            code = WRONG_USE
        except Exception:
            traceback.print_exc()
            code = 1
    return Result(int(code or 0), *(stream.getvalue().decode("utf-8", "replace") for stream in (out, err, both)))


def _run_module(name: str, arguments: Sequence[str]) -> int | None:
    """`rag-mt ARGUMENTS` or `python -m NAME ARGUMENTS` in this process."""
    if name == "rag-mt":
        return main(arguments)
    before = sys.argv
    sys.argv = [name, *arguments]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the module may have been imported before
            runpy.run_module(name, run_name="__main__", alter_sys=True)
    finally:
        sys.argv = before
    return None


@dataclass
class Command:
    """A line of a bash block that runs in this process: `[echo TEXT |] [NAME=VALUE ...] PROGRAM ... [> FILE]`."""

    words: list[str]
    stdin: bytes = b""
    environment: dict[str, str] = field(default_factory=dict)
    output: str = ""
    append: bool = False

    @property
    def module(self) -> str:
        """What runs: `rag-mt`, or what `python -m` would run."""
        return "rag-mt" if self.words[0] == "rag-mt" else self.words[2]

    @property
    def arguments(self) -> list[str]:
        return self.words[1:] if self.words[0] == "rag-mt" else self.words[3:]


def parsed(line: str, folder: Path) -> Command | None:
    """The command of a line, None if only bash can run it."""
    if re.search(r"\$|~/|<<", line):
        return None
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.commenters = ""
    lexer.whitespace_split = True
    words = list(lexer)
    if "#" in words:
        words = words[: words.index("#")]
    command = Command([])
    if words[:1] == ["echo"] and words[2:3] == ["|"]:
        command.stdin, words = f"{words[1]}\n".encode(), words[3:]
    while words and (match := re.fullmatch(r"([A-Z_]+)=(.*)", words[0])):
        command.environment[match[1]] = match[2]
        words = words[1:]
    if len(words) > 2 and words[-2] in (">", ">>"):
        command.append, command.output, words = words[-2] == ">>", words[-1], words[:-2]
    ours = words[:1] == ["rag-mt"] or (
        words[:2] == ["python", "-m"] and len(words) > 2 and words[2].split(".")[0] in PACKAGES
    )
    if not ours or any(re.fullmatch(r"[|&;<>]+", word) for word in words):
        return None
    for word in words:
        matches = sorted(folder.glob(word)) if re.search(r"[*?]", word) else []
        command.words += [str(path.relative_to(folder)) for path in matches] or [word]
    return command


def run_line(line: str, folder: Path) -> Result:
    """Run one line in a folder: in this process if that can be, else by bash."""
    command = parsed(line, folder)
    if command is None:
        return run_bash(line, folder)
    before = dict(os.environ)
    os.environ.update(command.environment)
    try:
        result = _captured(lambda: _run_module(command.module, command.arguments), folder, command.stdin)
    finally:
        os.environ.clear()
        os.environ.update(before)
    if command.output:
        with (folder / command.output).open("a" if command.append else "w", encoding="utf-8") as file:
            file.write(result.stdout)
        result = Result(result.code, "", result.stderr, result.stderr)
    return result


def run_bash(code: str, folder: Path) -> Result:
    """Run code by bash, in which `python` and `rag-mt` are those of this environment and this tree."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return Result(done.returncode, done.stdout, done.stderr, done.stderr + done.stdout)


def lines(code: str) -> list[str]:
    """The commands of a bash block: continued lines and the text that `<<` gives a command joined with it, comments and
    empty lines left out."""
    result: list[str] = []
    end = ""
    for line in re.sub(r"\\\n\s*", " ", code).splitlines():
        if end:
            result[-1] += f"\n{line}"
            end = "" if line == end else end
        elif line.strip() and not line.lstrip().startswith("#"):
            result.append(line)
            here = re.search(r"<<\s*['\"]?(\w+)", line)
            end = here[1] if here else ""
    return result


def run(block: Block, folder: Path, namespace: dict[str, Any]) -> list[Result]:
    """Run a block; the results of its commands, the last of which is one that failed if there is any."""
    if block.language == "python":
        name = f"{block.page.name}:{block.line}"
        return [_captured(lambda: exec(compile(block.code, name, "exec"), namespace), folder)]
    results = []
    for line in [block.code] if _NEEDS_BASH.search(block.code) else lines(block.code):
        if SET_UP.match(line):
            continue
        results.append(run_line(line, folder))
        if results[-1].code and block.marker != "run: hub":
            break
    return results


def one_sentence(result: Result) -> bool:
    """Whether a command ended as one does that its user has to change: exit code 2, a sentence, no traceback."""
    said = [line for line in result.stderr.splitlines() if line.strip()]
    return result.code == WRONG_USE and bool(said) and "Traceback" not in result.stderr and len(said[-1]) > 20


def likeness(shown: str, real: str) -> float:
    """How alike shown and real output are, from 0 to 1. A line `...` stands for any lines that are left out."""
    wanted, printed = _normal(shown), _normal(real)
    if "..." in wanted:
        first = wanted.index("...")
        last = len(wanted) - wanted.index("...") - 1
        wanted = [line for line in wanted if line != "..."]
        printed = printed[:first] + (printed[len(printed) - last :] if last else [])
    return difflib.SequenceMatcher(None, "\n".join(wanted), "\n".join(printed), autojunk=False).ratio()


def _normal(text: str) -> list[str]:
    """The lines without progress, times, ids and differences of spacing."""
    printed = [_PROGRESS.sub("", line.rpartition("\r")[2]) for line in text.split("\n")]
    printed = [" ".join(_CHANGING.sub("VARIES", line).split()) for line in printed]
    return [line for line in printed if line]
