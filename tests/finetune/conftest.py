"""Phrase pairs of two invented language pairs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

WORDS = [
    "stone",
    "river",
    "mountain",
    "garden",
    "window",
    "doctor",
    "market",
    "winter",
    "letter",
    "bridge",
    "teacher",
    "island",
    "kitchen",
    "summer",
    "engine",
    "forest",
    "village",
    "ticket",
    "captain",
    "weather",
    "shoulder",
    "question",
    "minister",
    "hospital",
]


def sentence_pair(rng: random.Random) -> tuple[str, str, list[int]]:
    """A source sentence of spelled-backwards words, its target in the same order, and all spans of one or two words."""
    target = rng.sample(WORDS, rng.randint(3, 7))
    source = [word[::-1] for word in target]
    spans: list[int] = []
    for size in (1, 2):
        for first in range(len(target) - size + 1):
            for words in (source, target):
                start = len(" ".join(words[:first])) + (first > 0)
                spans += [start, start + len(" ".join(words[first : first + size]))]
    return " ".join(source), " ".join(target), spans


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Phrase pairs of two language pairs in two domains, as `retrievers.phrase_pairs` writes them."""
    folder = tmp_path_factory.mktemp("pairs")
    rng = random.Random(5)
    for name in ("xa-en", "xb-en"):
        rows = [sentence_pair(rng) for _ in range(60)]
        columns = {
            "line": pa.array(range(1, 61), pa.int32()),
            "domain": ["news", "ui"] * 30,
            "source": [row[0] for row in rows],
            "target": [row[1] for row in rows],
            "spans": pa.array([row[2] for row in rows], pa.list_(pa.int32())),
        }
        table = pa.table(columns)
        (folder / name).mkdir()
        for number, part in enumerate((table.slice(0, 40), table.slice(40))):
            with pa.ipc.new_file(str(folder / name / f"pairs-{number:05}.arrow"), part.schema) as file:
                file.write_table(part)
        (folder / name / "manifest.json").write_text('{"aligner": "by hand"}')
        (folder / name / "frequent.json").write_text(json.dumps({name.split("-")[0]: [], "en": ["stone"]}))
        dev = []
        for line in range(1, 31):
            source, target, _ = sentence_pair(rng)
            links = [[n, n] for n in range(len(source.split()))]
            dev.append(json.dumps({"line": line, "source": source, "target": target, "links": links}))
        (folder / f"{name}.dev.jsonl").write_text("\n".join(dev) + "\n")
    return folder
