"""Monolingual text from training data."""

from __future__ import annotations

import pytest

from eval.data.index_text import main


@pytest.fixture
def data(tmp_path):
    (tmp_path / "train").mkdir()
    for code in ("de", "cs", "fi", "ru", "ro", "tr"):
        lines = [
            f"The council of {code} met again on Monday evening.\tx {code}\tnews\ts",
            "The river rose by two metres in one night.\ty\tmixed\ts",
            "Too short.\tz\tnews\ts",
            "Press the button with the arrow to go on now.\tw\tui\ts",
            "This line is among the sentences of a test set.\tv\tnews\ts",
        ]
        (tmp_path / "train" / f"{code}-en.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "test.txt").write_text("y ||| this line is among the sentences of a test-set\n")
    return tmp_path


def test_each_sentence_once_and_every_skip_counted(data, capsys):
    arguments = ["--data", str(data), "--output", str(data / "out.txt"), "--exclude", str(data / "test.txt")]
    assert main(arguments) == 0
    lines = (data / "out.txt").read_text().splitlines()
    assert len(lines) == 7
    assert lines[0] == "The council of de met again on Monday evening."
    assert lines.count("The river rose by two metres in one night.") == 1
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["news: 6 sentences", "mixed: 1 sentences"]
    assert out[2].startswith("7 sentences; skipped 17 lines: 11 seen before or excluded, 6 with fewer than 8 words")


def test_the_other_side(data, capsys):
    arguments = ["--data", str(data), "--output", str(data / "o.txt"), "--side", "fi", "--words", "2"]
    assert main(arguments) == 0
    assert (data / "o.txt").read_text() == "x fi\n"
    assert main([*arguments[:4], "--side", "xx"]) == 2
    assert main([*arguments[:3], str(data / "none.txt"), "--domains", "none"]) == 2
    assert not (data / "none.txt").exists()
    assert "no sentence of" in capsys.readouterr().err


def test_a_sample_is_always_the_same_and_in_order(data, capsys):
    kept = []
    for name, limit in (("all", "9"), ("a", "4"), ("b", "4")):
        assert main(["--data", str(data), "--output", str(data / name), "--limit", limit]) == 0
        kept.append((data / name).read_text().splitlines())
    assert len(kept[0]) == 8 and len(kept[1]) == 4 and kept[1] == kept[2]
    assert kept[1] == [line for line in kept[0] if line in kept[1]]
    assert "\n4 of 8 sentences; skipped" in capsys.readouterr().out
