"""`rag-mt mine`: real sentences mined from the sample corpus, mistakes, interruption."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.types import Skips
from rag_mt.cli.main import main
from rag_mt.formats.tmx import TMX

HIDDEN, ALONE = 12, 12


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A German and an English file: the last `HIDDEN` German lines are those of the first English ones, backwards; a
    German line is there twice and an English one stands among the German."""
    folder = tmp_path_factory.mktemp("mine")
    german, english = ((SAMPLE_CORPUS / f"{c}.txt").read_text(encoding="utf-8").splitlines() for c in ("de", "en"))
    a = [*german[HIDDEN : HIDDEN + ALONE], *german[:HIDDEN][::-1], german[0].upper() + "!", english[HIDDEN + ALONE]]
    b = [*english[:HIDDEN], *english[HIDDEN + ALONE : HIDDEN + 2 * ALONE]]
    (folder / "a.txt.gz").write_bytes(gzip.compress("\n".join(a).encode()))
    (folder / "b.tsv").write_text("".join(f"{n}\t{line}\n" for n, line in enumerate(b, 1)), encoding="utf-8")
    return folder / "a.txt.gz", folder / "b.tsv"


def arguments(texts: tuple[Path, Path], output: Path, *more: str) -> list[str]:
    own = ["mine", *map(str, texts), "--src", "de", "--tgt", "en", "-o", str(output), "--second-column", "2", "--quiet"]
    return [*own, "--no-split", "--dtype", "float32", *more]


def test_hidden_pairs_are_found(texts: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, work = tmp_path / "pairs.tsv", tmp_path / "work"
    assert main(arguments(texts, output, "--threshold", "0", "--work", str(work))) == 0
    told = capsys.readouterr().err
    assert "24 of 26 lines (1 on both sides, 1 near-duplicates of others)" in told
    assert "23 of 24 lines (1 on both sides)" in told
    head, *rows = [line.split("\t") for line in output.read_text(encoding="utf-8").splitlines()]
    assert head == ["score", "de", "en", "de_file", "de_line", "en_file", "en_line"]
    lines = {(int(row[4]), int(row[6])) for row in rows[:HIDDEN]}
    assert lines == {(ALONE + HIDDEN - n, n + 1) for n in range(HIDDEN)}, "the true pairs score highest"
    scores = [float(row[0]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    memory = tmp_path / "pairs.tmx"
    cut = (scores[HIDDEN - 1] + scores[HIDDEN]) / 2
    assert main(arguments(texts, memory, "--threshold", f"{cut:.6f}", "--work", str(work))) == 0
    assert [(a.text, b.text) for a, b in TMX.pairs(memory, "de", "en", Skips())] == [
        tuple(r[1:3]) for r in rows[:HIDDEN]
    ]
    assert main(arguments(texts, output, "--threshold", "0", "--work", str(work), "--check-language")) == 2
    assert "give --restart to make them anew" in capsys.readouterr().err


def test_the_classifier_is_the_default_and_the_margin_can_be_asked_for(
    texts: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, work = tmp_path / "pairs.tsv", str(tmp_path / "work")
    told, first = [], []
    for more in ([], ["--score", "margin"], ["--threshold", "1.01"]):
        assert main(arguments(texts, output, "--work", work, *more)) == 0
        told.append(capsys.readouterr().err)
        rows = [line.split("\t") for line in output.read_text(encoding="utf-8").splitlines()[1:]]
        first.append(float(rows[0][0]))
        right = [int(row[4]) == ALONE + HIDDEN + 1 - int(row[6]) for row in rows]
        assert all(right[: HIDDEN // 2])
        assert len(right) >= HIDDEN // 2
    assert ["probabilities of the classifier" in own for own in told] == [True, False, False]
    assert first[0] <= 1 < first[1] == first[2], "no probability is above 1"


def test_an_interrupted_run_leaves_no_output_and_goes_on(
    texts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from retrievers.encoders.encoder import TransformerEncoder

    margin = "--score", "margin", "--threshold", "0"
    whole = tmp_path / "whole.tsv"
    assert main(arguments(texts, whole, *margin)) == 0
    encode, calls = TransformerEncoder.encode, []

    def interrupted(self: TransformerEncoder, *args: object) -> object:
        calls.append(args)
        if len(calls) == 2:  # the first side is done
            raise KeyboardInterrupt
        return encode(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(TransformerEncoder, "encode", interrupted)
    output = tmp_path / "pairs.tsv"
    assert main(arguments(texts, output, *margin)) == 130
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pairs.tsv.mining", "whole.tsv"]
    assert main(arguments(texts, output, *margin)) == 0
    assert len(calls) == 3, "the first side is not encoded again"
    assert output.read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pairs.tsv", "whole.tsv"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--tgt", "de-AT"], "A and B are both German"),
        (["-o", "pairs.txt"], "is neither .tsv nor .tmx"),
        (["-o", "."], "is a folder"),
        (["-o", "nowhere/pairs.tsv"], "does not exist or cannot be written"),
        (["--second-column", "text"], "has no column 'text'"),
        (["--neighbours", "7"], "neighbours: give --threshold with --neighbours 7"),
        (["--score", "classifier", "--neighbours", "7"], "are for the margin: give --score margin"),
        (["--score", "classifier", "--encoder", "other"], "there is no classifier for the encoder other"),
        (["--tgt", "ja", "--check-language", "--threshold", "1"], "there is no word list of Japanese"),
    ],
)
def test_mistakes_are_one_sentence(
    texts: tuple[Path, Path], tmp_path: Path, changes: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments(texts, tmp_path / "pairs.tsv"), *changes]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error
    assert error.startswith("rag-mt: ")
    assert not list(tmp_path.glob("pairs*"))


def test_a_missing_input_and_an_input_as_output_are_told(
    texts: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["mine", "nowhere.txt", str(texts[1]), "--src", "de", "--tgt", "en", "-o", str(tmp_path / "p.tsv")]) == 2
    )
    assert "nowhere.txt" in capsys.readouterr().err
    assert main(["mine", str(texts[1]), str(texts[1]), "--src", "de", "--tgt", "en", "-o", str(texts[1])]) == 2
    assert "would overwrite the input" in capsys.readouterr().err
