"""Completions that another run of the folder has already: of the same prompt by the same language model.

Systems that differ in their hints ask the same wherever a sentence has none. In float32 a completion does not depend on
what else is in its batch, so that it can be taken over; in other number formats each run generates its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.types import Completion, LanguageModel, Prompt

SAME = ("max_new_tokens", "versions")
"""The settings of a run that a completion depends on beside its prompt and the language model that answers it."""


def asked(prompt: Prompt) -> str:
    """A short hash of what the language model reads and where it stops."""
    return settings_hash([prompt.text, prompt.chat, prompt.stop])


def repeatable(llm: LanguageModel) -> bool:
    """Whether a completion depends on its prompt alone. (8-bit weights in float32 are rounded by batch.)"""
    model = getattr(llm, "model", None)
    return getattr(model, "dtype", None) == torch.float32 and not getattr(model, "is_quantized", False)


def other_completions(own: Path, settings: Mapping[str, Any]) -> dict[tuple[str, str], Completion]:
    """The completions in the records of the other systems of a folder, by the fingerprint of the language model that
    gave them and by `asked`, for the direction of the records `own`; lines that a crash has cut are left out."""
    found: dict[tuple[str, str], Completion] = {}
    for path in sorted(own.parent.parent.glob(f"*/{own.name}")):
        if path == own:
            continue
        with path.open(encoding="utf-8", errors="surrogatepass") as lines:
            head, *rest = [*map(_read, lines)] or [{}]  # a run that has just begun may have written nothing
        theirs = head.get("settings", {})
        if any(theirs.get(name) != settings[name] for name in SAME):
            continue
        for item in rest:
            for _, record in item.get("done", ()):
                if "asked" in record:
                    completion = (record["raw"], record["tokens"], record["finished"], record["stopped"])
                    found[record.get("llm", theirs["llm"]), record["asked"]] = Completion(*completion)
    return found


def _read(line: str) -> dict[str, Any]:
    try:
        item = json.loads(line)
    except ValueError:
        return {}
    return item if isinstance(item, dict) else {}
