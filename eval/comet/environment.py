"""The environment of unbabel-comet, which cannot live beside this program's libraries, and programs run in it.

It is `.venv-comet` beside the source code, which `make comet` creates; `RAG_MT_COMET` names another one.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json

VARIABLE = "RAG_MT_COMET"
FOLDER = Path(__file__).parents[2] / ".venv-comet"


def comet_python() -> Path:
    """The Python of the environment; raises UserError where there is none with unbabel-comet in it."""
    folder = Path(os.environ.get(VARIABLE) or FOLDER)
    python = next((p for p in (folder / "bin" / "python", folder / "Scripts" / "python.exe") if p.is_file()), None)
    packages = (*folder.glob("lib/python3*/site-packages"), folder / "Lib" / "site-packages")
    if python is None or not any((p / "comet" / "__init__.py").is_file() for p in packages):
        raise UserError(
            f"there is no environment with unbabel-comet in {folder}: run `make comet`, which creates .venv-comet, or "
            f"set {VARIABLE} to the folder of your own"
        )
    return python


def run_in_comet(script: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of `eval/SCRIPT.py`, run by the environment's Python, to a JSON-able request.

    Its progress goes to stderr. Raises UserError with what it says is wrong, or if it ends without an answer.
    """
    program = Path(__file__).parent / "isolated" / f"{script}.py"
    with TemporaryDirectory() as scratch:
        asked, answered = Path(scratch) / "request.json", Path(scratch) / "answer.json"
        asked.write_text(json.dumps(request), encoding="utf-8")
        # -P: the folder of the program holds modules of this project, which are not for that environment
        command = [str(comet_python()), "-P", str(program), str(asked), str(answered)]
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        code = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=False).returncode
        if not answered.is_file():
            raise UserError(
                f"unbabel-comet ended without an answer (exit code {code}): its own message is above; if its "
                "environment is damaged, delete .venv-comet and run `make comet`"
            )
        answer: dict[str, Any] = read_json(answered)
    if "error" in answer:
        raise UserError(answer["error"])
    return answer
