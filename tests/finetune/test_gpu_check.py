"""The check of a GPU, as far as a machine without one can tell."""

import faiss
import pytest
import torch

from finetune.gpu_check import came_to_end, encoding, main, searching
from rag_mt.base.errors import UserError


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(capsys):
    assert main([]) == 2
    assert "sees no CUDA device" in capsys.readouterr().err


@pytest.mark.skipif(hasattr(faiss, "StandardGpuResources"), reason="this FAISS has GPU code")
def test_the_search_says_what_is_missing():
    with pytest.raises(UserError, match=r"searches on no GPU: install the extra gpu"):
        list(searching(900))


def test_vectors_of_two_devices_are_compared(monkeypatch):
    monkeypatch.setattr("finetune.gpu_check.ENCODED", 70)
    (line,) = encoding("cpu")
    assert "least cosine of the two vectors of a sentence 1.0000" in line


def test_a_part_that_stops_is_told(capsys):
    def part():
        yield "one line"
        raise RuntimeError("no memory\nat all")

    assert not came_to_end("search", part())
    assert capsys.readouterr().out == "one line\nsearch stopped: no memory\n"
    assert came_to_end("loading", iter(["fine"]))


@pytest.mark.parametrize(("error", "line"), [(ValueError("odd"), "odd"), (AssertionError(), "AssertionError")])
def test_odd_errors_end_one_part_only(capsys, error, line):
    def part():
        raise error
        yield

    assert not came_to_end("LoRA", part())
    assert capsys.readouterr().out == f"LoRA stopped: {line}\n"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_described(capsys):
    code = main(["--llm", "embedded:smollm2-135m", "--vectors", "45000"])
    found = capsys.readouterr().out
    assert "LoRA on embedded:smollm2-135m, quantization none" in found
    stopped = [line for line in found.splitlines() if " stopped: " in line]
    missing = [] if hasattr(faiss, "StandardGpuResources") else ["faiss-gpu"]
    assert len(stopped) == len(missing) and code == (1 if missing else 0), stopped
