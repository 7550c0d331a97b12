"""The tables of training runs: of phrase models and of adapters."""

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


def test_adapters_without_development_losses(tmp_path, capsys):
    without = adapter(tmp_path / "without", {"step": 2, "pairs": 32, "loss": 2.5, "seconds": 90})
    assert main([without]) == 2
    assert "--dev" in capsys.readouterr().err
    (tmp_path / "more").mkdir()
    assert main([without, adapter(tmp_path / "more" / "without", {"dev": 1})]) == 2
    assert "named without: rename" in capsys.readouterr().err


def test_runs_of_two_kinds_are_not_compared(tmp_path, capsys):
    phrases, tuned = run_folder(tmp_path / "phrases", 50.0), adapter(tmp_path / "tuned", {"dev": 1.0})
    assert main([tuned, phrases]) == 2
    assert "phrases is a phrase model and tuned is none" in capsys.readouterr().err
