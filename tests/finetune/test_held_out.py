"""The pairs that are kept from training."""

from __future__ import annotations

from finetune.held_out import held_out, main

KNOWN = [8, 21, 23, 28, 30, 39, 49, 57]


def test_a_tenth_is_held_out_however_it_is_written():
    texts = [f"Sentence number {n} of the test." for n in range(3000)]
    kept = [t for t in texts if held_out(t)]
    assert 240 < len(kept) < 360
    assert all(held_out(t.upper().replace(" ", "  ").rstrip(".") + " !") for t in kept)


def test_the_rule_does_not_change():
    assert [n for n in range(60) if held_out(f"line {n}")] == KNOWN


def test_the_list(tmp_path, capsys):
    (tmp_path / "train").mkdir()
    lines = [f"line {n}\tZeile {n}\tnews\tx" for n in range(60)]
    (tmp_path / "train" / "de-en.tsv").write_text("\n".join(lines) + "\n")
    assert main(["--data", str(tmp_path), "--output", str(tmp_path / "list.tsv")]) == 0
    wanted = [f"de-en.tsv\t{n + 1}\t{lines[n]}" for n in KNOWN]
    assert (tmp_path / "list.tsv").read_text().splitlines() == wanted
    assert capsys.readouterr().out == f"de-en.tsv: {len(KNOWN)} pairs\n"
    assert main(["--data", str(tmp_path / "none"), "--output", "x"]) == 2
    assert "give the folder that holds train/" in capsys.readouterr().err
