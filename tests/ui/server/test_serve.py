"""`rag-mt serve` as a process of its own with the embedded models: translate, cancel by hanging up, stop."""

from __future__ import annotations

import re
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

ROOT = Path(__file__).parents[3]


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
    body = {"q": "Guten Morgen. Wo ist der Bahnhof?", "source": "auto", "target": "en", "hints": True}
    for _ in range(100):  # it listens before it accepts
        try:
            answer = httpx.post(f"{url}/translate", json=body, timeout=300).json()
            break
        except httpx.ConnectError:
            time.sleep(0.1)
    assert "station" in answer["translatedText"].casefold()
    assert answer["detectedLanguage"]["language"] == "de"
    assert httpx.get(f"{url}/health").json()["translators"] == {"de-en ccpr": "ready"}


def test_the_lines_of_the_readme(server: tuple[str, subprocess.Popen[str]]) -> None:
    url, _ = server
    (block,) = re.findall(r"<!-- served -->\n```bash\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    lines = block.replace("http://127.0.0.1:5000", url).splitlines()
    assert len(lines) >= 8
    for line in lines:
        done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.strip() and '"error"' not in done.stdout.replace('"error":""', ""), line


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
