"""`rag-mt serve` as a process of its own with the embedded models: translate, cancel by hanging up, stop."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from rag_mt.cli.main import main
from tests.doc_blocks import ALIKE, Block, blocks, likeness, pages, run_bash, run_line

ADDRESS = "http://127.0.0.1:5000"
"""The server in the manual."""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what `rag-mt examples` writes."""
    place = tmp_path_factory.mktemp("examples")
    assert run_line("rag-mt examples", place).code == 0
    return place


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server and its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    data = tmp_path_factory.mktemp("data")
    command = [sys.executable, "-m", "rag_mt.cli.main", "serve", "--port", str(port), "--data", str(data)]
    process = subprocess.Popen([*command, "--limit", "text_chars=2000"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(f"rag-mt: listening at http://127.0.0.1:{port}")
    yield f"http://127.0.0.1:{port}", process
    process.kill()
    process.wait(10)


def test_real_models(server: tuple[str, subprocess.Popen[str]]) -> None:
    url, _ = server
    text = "Wo ist der Bahnhof? Das Museum ist montags geschlossen."
    body = {"q": text, "source": "auto", "target": "en", "hints": True}
    for _ in range(100):  # it listens before it accepts
        try:
            answer = httpx.post(f"{url}/translate", json=body, timeout=300).json()
            break
        except httpx.ConnectError:
            time.sleep(0.1)
    assert "station" in answer["translatedText"].casefold()
    assert answer["detectedLanguage"]["language"] == "de"
    assert httpx.get(f"{url}/health").json()["translators"] == {"de-en ccpr": "ready"}
    assert answer["hints"], "who asks for hints gets those of the sample index"


def tells_error(answers: str) -> bool:
    """Whether one of the answers is an error."""
    return '"error"' in answers.replace('"error":""', "")


SERVED = [block for page in pages() for block in blocks(page) if block.marker == "served"]


@pytest.mark.parametrize("block", SERVED, ids=lambda block: f"{block.page.stem}-{block.line}")
def test_served_blocks_of_the_manual(server: tuple[str, subprocess.Popen[str]], examples: Path, block: Block) -> None:
    url, _ = server
    result = run_bash(block.code.replace(ADDRESS, url), examples)
    assert result.code == 0, result.both
    assert result.stdout.strip()
    assert tells_error(result.stdout) == tells_error(block.output or ""), result.both
    if block.output is not None:
        assert likeness(block.output, result.stdout.replace(url, ADDRESS)) >= ALIKE, f"{block}\n{result.stdout}"


def test_what_the_manual_says_of_requests_is_tried() -> None:
    routes = ("/translate ", "/detect", "/languages", "/translate_file", "/index", "/health", "/metrics", "/settings")
    code = "".join(block.code for block in SERVED)
    assert all(route in code for route in routes)


def test_it_stops_when_it_is_told_to(server: tuple[str, subprocess.Popen[str]]) -> None:
    _, process = server
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) in (0, -signal.SIGTERM)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--limit", "queue=none"], "--limit 'queue=none' changes nothing"),
        (["--languages", "de"], "expected at least two"),
        (["--index", "nowhere"], "index nowhere does not exist"),
        (["--api-keys", "nowhere"], "nowhere cannot be read"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], said: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["serve", "--data", str(tmp_path), *arguments]) == 2
    stderr = capfd.readouterr().err
    assert said in stderr
    assert stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*"))


def test_a_port_that_cannot_be_had(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--data", str(tmp_path), "--port", str(taken.getsockname()[1])]) == 2
    assert "give another --host or --port" in capfd.readouterr().err
    assert not [*tmp_path.glob("*/.uploads-*"), *tmp_path.glob("documents/*")]
    with pytest.raises(SystemExit):
        main(["serve", "--port", "70000"])
    assert "'70000' is not a port" in capfd.readouterr().err


def test_help_names_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    assert "127.0.0.1" in capsys.readouterr().out
