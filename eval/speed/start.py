"""CPU seconds that a command takes to start: importing, help, and one sentence, with everything cached.

    python -m eval.speed.start [--rounds 3] [--retriever none,ccpr] [--output FILE.json]

Each is a program of its own and its seconds are those of the processor, user and system together. They run in turn with
the baseline, importing torch and transformers alone, which no command that loads a model can be quicker than; on a busy
machine the ratios hold better than the seconds. A first round, which fills caches, does not count.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import write_json

BASELINE = "import torch, transformers"
SENTENCE = "Der Stadtrat hat den Bau einer neuen Brücke beschlossen.\n"


def cpu_seconds(command: Sequence[str]) -> float:
    """What a program takes of the processor, in seconds; raises UserError if it fails."""
    before = _seconds_of_programs()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = _seconds_of_programs() - before
    if done.returncode:
        raise UserError(f"{' '.join(command)} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return seconds


def _seconds_of_programs() -> float:
    """What all programs that this one started and that have ended took, to the microsecond (`os.times` counts
    hundredths); raises UserError where the system does not tell."""
    try:
        from resource import RUSAGE_CHILDREN, getrusage
    except ModuleNotFoundError:
        raise UserError("this system does not tell what its programs took: measure on Linux or macOS") from None
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def commands(retrievers: Sequence[str], file: Path) -> dict[str, list[str]]:
    """What is measured, by name: the baseline first."""
    rag_mt = [sys.executable, "-m", "rag_mt"]
    translate = [*rag_mt, "translate", "--quiet", "--src", "de", str(file)]
    return {
        BASELINE: [sys.executable, "-c", BASELINE],
        "import rag_mt": [sys.executable, "-c", "import rag_mt"],
        "rag-mt --help": [*rag_mt, "--help"],
        **{f"one sentence, {name}": [*translate, "--retriever", name] for name in retrievers},
    }


def report(options: argparse.Namespace) -> int:
    """Measure all in turn; print medians and their ratios to the baseline."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sentence.txt"
        file.write_text(SENTENCE, encoding="utf-8")
        programs = commands(options.retriever.split(","), file)
        rounds = [{name: cpu_seconds(program) for name, program in programs.items()} for _ in range(options.rounds + 1)]
    seconds = {name: [taken[name] for taken in rounds[1:]] for name in programs}
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        print(f"{name:28s}{median:7.2f} s of CPU {median / medians[BASELINE]:6.2f} x")
    if options.output:
        write_json(Path(options.output), {"seconds": seconds, "median": medians, "baseline": BASELINE})
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(
        prog="python -m eval.speed.start",
        description=__doc__,
        examples=["--rounds 1 --retriever none"],
    )
    parser.add_argument("--rounds", type=positive, default=3, help="rounds that count")
    parser.add_argument("--retriever", default="none,ccpr", help="retrievers to translate with")
    parser.add_argument("--output", metavar="FILE", help="write the seconds as JSON too")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
