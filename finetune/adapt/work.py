"""The work folder of an adaptation: its settings, and the seconds that each part has taken so far."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rag_mt.base.files import read_json, write_json
from rag_mt.translation.journal import check_settings

PLAN, TIMES = "plan.json", "seconds.json"


class Work:
    """A folder whose contents belong to the `settings`; raises UserError for one of other settings unless `restart`
    forgets it."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], restart: bool) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = json.loads(json.dumps(settings, default=str))
        if restart:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        if self.plan is not None:
            check_settings(folder, self.plan["settings"], self.settings)

    @property
    def plan(self) -> dict[str, Any] | None:
        """What was planned, if anything was."""
        path = self.folder / PLAN
        plan: dict[str, Any] | None = read_json(path) if path.is_file() else None
        return plan

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """Remember what was planned."""
        write_json(self.folder / PLAN, {"settings": self.settings, **plan})

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of each part, those of interrupted runs included."""
        path = self.folder / TIMES
        seconds: dict[str, float] = read_json(path) if path.is_file() else {}
        return seconds

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Count the seconds of the block for a part."""
        begin = time.monotonic()
        try:
            yield
        finally:
            seconds = self.seconds
            seconds[part] = round(seconds.get(part, 0.0) + time.monotonic() - begin, 1)
            write_json(self.folder / TIMES, seconds)

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder)
