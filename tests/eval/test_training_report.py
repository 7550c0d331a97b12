"""The table of training runs."""

from __future__ import annotations

import json

from eval.training_report import main


def run_folder(folder, average, **settings):
    folder.mkdir()
    point = {"step": 5, "pairs": 40, "xa-en": average - 1, "xb-en": average + 1, "average": average}
    facts = {
        "settings": {"model": {"layer": 8, **settings}, "training": {"steps": 5, "evaluate_every": average}},
        "sentence_pairs_seen": 4000,
        "training_seconds": 90,
        "curve": [{**point, "average": 1.0}, point | {"segmentation_auc": 90.25}],
    }
    (folder / "training.json").write_text(json.dumps(facts))
    return str(folder)


def test_a_row_per_run_says_what_differs_and_by_how_much(tmp_path, capsys):
    base, other = run_folder(tmp_path / "base", 50.0), run_folder(tmp_path / "deep", 48.5, layer=12, rank=4)
    assert main([base, other, "--output", str(tmp_path / "table.md")]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].startswith("| run | set otherwise | pairs seen | minutes | xa-en | xb-en | average | change |")
    assert lines[2] == "| base |  | 4,000 | 1.5 | 49.0 | 51.0 | 50.0 |  | 90.2 |"
    assert lines[3] == "| deep | `model.layer=12`, `model.rank=4` | 4,000 | 1.5 | 47.5 | 49.5 | 48.5 | -1.5 | 90.2 |"
    assert (tmp_path / "table.md").read_text() == text


def test_mistakes(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "there is no" in capsys.readouterr().err
    (tmp_path / "training.json").write_text('{"curve": []}')
    assert main([str(tmp_path)]) == 2
    assert "has no scores yet" in capsys.readouterr().err
    one = run_folder(tmp_path / "one", 50.0)
    assert main([one, one]) == 2
    assert "named one: rename" in capsys.readouterr().err
