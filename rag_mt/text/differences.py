"""What changed from one text to another, word by word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

# Words, single characters of scripts that write no spaces, runs of blanks, single other characters.
_TOKEN = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[^\W_]+|\s+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of words `before` that became `after`: the same, or it `differs`; one of them may be empty then."""

    before: str
    after: str

    @property
    def differs(self) -> bool:
        return self.before != self.after


def differences(before: str, after: str) -> list[Run]:
    """Two texts as runs that are equal or differ; joined, the runs are the texts. Differing words with only blanks
    between them are one run."""
    words = _TOKEN.findall(before), _TOKEN.findall(after)
    runs = [
        Run("".join(words[0][a:b]), "".join(words[1][c:d]))
        for _, a, b, c, d in SequenceMatcher(None, *words, autojunk=False).get_opcodes()
    ]
    joined: list[Run] = []
    for at, run in enumerate(runs):
        blank = run.before.isspace() and 0 < at < len(runs) - 1
        if joined and joined[-1].differs and (run.differs or blank):
            joined[-1] = Run(joined[-1].before + run.before, joined[-1].after + run.after)
        else:
            joined.append(run)
    return joined


def changes(before: str, after: str) -> list[tuple[str, str]]:
    """The runs that differ, without the blanks around them."""
    return [(run.before.strip(), run.after.strip()) for run in differences(before, after) if run.differs]
