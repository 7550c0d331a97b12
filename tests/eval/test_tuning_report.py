"""The table of LoRA runs."""

from __future__ import annotations

import json

from eval.tuning_report import main


def adapter(folder, *points, **facts):
    folder.mkdir()
    (folder / "training.json").write_text(json.dumps({"curve": list(points), **facts}))
    return str(folder)


def test_a_row_per_evaluation_counts_the_pairs_of_the_first_stage(tmp_path, capsys):
    point = {"step": 2, "pairs": 32, "loss": 2.5, "dev": 2.25, "de-en": 2.0, "cs-en": 2.5, "seconds": 90}
    first = adapter(tmp_path / "first", point, point | {"pairs": 64, "dev": 2.125}, sentence_pairs_seen=1000)
    own = {"sentence_pairs_seen": 1000, "training_seconds": 600}
    second = adapter(tmp_path / "second", point, started_from={**own, "started_from": own})
    assert main([first, second, "--output", str(tmp_path / "table.md")]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[2:] == [
        "| first | 32 | 2 | 2.500 | 2.250 | cs-en 2.50, de-en 2.00 |",
        "| first | 64 | 2 | 2.500 | 2.125 | cs-en 2.50, de-en 2.00 |",
        "| second | 2,032 | 22 | 2.500 | 2.250 | cs-en 2.50, de-en 2.00 |",
    ]
    assert (tmp_path / "table.md").read_text() == text


def test_mistakes(tmp_path, capsys):
    without = adapter(tmp_path / "without", {"step": 2, "pairs": 32, "loss": 2.5, "seconds": 90})
    assert main([without]) == 2
    assert "--dev" in capsys.readouterr().err
    (tmp_path / "more").mkdir()
    assert main([without, adapter(tmp_path / "more" / "without", {"dev": 1})]) == 2
    assert "named without: rename" in capsys.readouterr().err
