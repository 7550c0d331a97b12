"""The README and the manual: every block is run, what is shown is what is printed, every link leads somewhere."""

from __future__ import annotations

import gc
import re
import shutil
import socket
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.doc_blocks import ALIKE, ROOT, SET_UP, Block, blocks, likeness, lines, one_sentence, pages, run, run_line

README = ROOT / "README.md"
MANUAL = [
    "cli",
    "python",
    "http-api",
    "demo",
    "engines",
    "serving",
    "retrievers",
    "ccpr",
    "xpr",
    "passages",
    "mining",
    "tuning",
    "evaluation",
    "papers",
    "index-format",
    "scale",
    "architecture",
    "offline",
    "licences",
]
TEXTS = [*pages(), *(path for path in (ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md") if path.exists())]
MARKED = {
    marker: [page for page in pages() if any(b.marker == marker for b in blocks(page))]
    for marker in ("run", "run: slow", "run: hub")
}

LONG = {"checks", "glossaries", "mining", "passages", "quality", "retrievers", "scale", "style-and-context", "xpr"}
"""Pages whose blocks take long together, if none does alone."""


def stem(path: Path) -> str:
    return path.stem


def each_page(paths: Iterable[Path]) -> pytest.MarkDecorator:
    def marks(path: Path) -> list[pytest.MarkDecorator]:
        return [pytest.mark.slow] if stem(path) in LONG else []

    return pytest.mark.parametrize("path", [pytest.param(path, id=stem(path), marks=marks(path)) for path in paths])


@dataclass
class Page:
    """The folder and the Python names that the blocks of a page share, and which blocks have been run."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    done: set[int] = field(default_factory=set)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what `rag-mt examples` writes."""
    place = tmp_path_factory.mktemp("examples")
    result = run_line("rag-mt examples", place)
    assert result.code == 0, result.both
    return place


@pytest.fixture(scope="module", autouse=True)
def width() -> Iterator[None]:
    """What is shown is as wide as where nothing says how wide it may be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(scope="module")
def shared_models() -> Iterator[None]:
    """Models are loaded once for all blocks that only read them; training loads its own. Servers stop at once."""
    from rag_mt.llm import transformers_llm
    from rag_mt.models import trained
    from rag_mt.models.loading import load_encoder, load_llm
    from retrievers.encoders import encoder
    from retrievers.xpr import model

    with pytest.MonkeyPatch.context() as patch:
        shared_encoder, shared_llm = lru_cache(maxsize=4)(load_encoder), lru_cache(maxsize=2)(load_llm)
        for module in (trained, encoder, model):
            patch.setattr(module, "load_encoder", shared_encoder)
        patch.setattr(transformers_llm, "load_llm", shared_llm)
        _serve_nobody(patch)
        yield


def _serve_nobody(patch: pytest.MonkeyPatch) -> None:
    """Servers listen at a free port and stop when they would begin to wait for requests."""
    import gradio
    import uvicorn

    from ui.page import demo, page
    from ui.server import serve

    launch = page.launch
    patch.setattr(
        page, "launch", lambda demo_page, limits, host, port, *rest: launch(demo_page, limits, host, 0, *rest)
    )
    patch.setattr(serve, "listening", lambda host, port: socket.create_server(("127.0.0.1", 0)))
    answer = uvicorn.Server.run  # Gradio's own server has no sockets given
    patch.setattr(uvicorn.Server, "run", lambda server, sockets=None: None if sockets else answer(server))
    patch.setattr(gradio.Blocks, "block_thread", lambda self: None)
    patch.setattr(demo, "signal", Mock())


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory, examples: Path) -> dict[Path, Page]:
    """The pages with their folders."""
    result = {}
    for path in pages():
        folder = tmp_path_factory.mktemp(path.stem)
        shutil.copytree(examples, folder, dirs_exist_ok=True)
        result[path] = Page(folder)
    return result


def run_page(page: Page, path: Path, markers: set[str]) -> None:
    """Run the blocks of a page that have one of the markers and have not been run, in order."""
    for number, block in enumerate(blocks(path)):
        if block.marker in markers and number not in page.done:
            page.done.add(number)
            run_block(block, page)


def run_block(block: Block, page: Page) -> None:
    """Run a block and compare what it prints with what is shown."""
    results = run(block, page.folder, page.names)
    if block.marker == "run: slow":
        gc.collect()  # trained models lie in circles, and commands have Python look for such ones rarely
    both = "".join(result.both for result in results)
    if block.marker == "run: hub":
        assert all(r.code == 0 or one_sentence(r) for r in results), f"{block}\n{both}"
        return
    assert not any(result.code for result in results), f"{block}\n{both}"
    if block.output is not None:
        ratio = likeness(block.output, both)
        assert ratio >= ALIKE, f"{block}\nis shown with other output ({ratio:.2f}):\n{both}"


@pytest.mark.usefixtures("shared_models")
@each_page(MARKED["run"])
def test_blocks_run(opened: dict[Path, Page], path: Path) -> None:
    run_page(opened[path], path, {"run"})


@pytest.mark.usefixtures("shared_models")
@each_page(MARKED["run: hub"])
def test_blocks_that_need_more_than_this_machine_may_have(opened: dict[Path, Page], path: Path) -> None:
    run_page(opened[path], path, {"run", "run: hub"})


@pytest.mark.slow
@pytest.mark.usefixtures("shared_models")
@pytest.mark.parametrize("path", MARKED["run: slow"], ids=stem)
def test_slow_blocks_run(opened: dict[Path, Page], path: Path) -> None:
    """With those of the page that are not slow, in the order of the page, if they have not been run yet."""
    run_page(opened[path], path, {"run", "run: slow"})


def test_every_block_has_a_marker() -> None:
    assert len(MARKED["run"]) >= 5
    assert {stem(path) for path in MARKED["run"]} >= LONG
    unmarked = [block for page in pages() for block in blocks(page) if not block.marker]
    assert not unmarked, "\n".join(map(str, unmarked))


def test_set_up_lines_are_those_of_the_makefile() -> None:
    """`make` and the lines that are given for it do the same; extras and targets are there."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    every_line = [line for page in pages() for block in blocks(page) for line in lines(block.code)]
    marked = [line for page in pages() for b in blocks(page) if b.marker == "setup" for line in lines(b.code)]
    assert len(marked) >= 5
    assert all(SET_UP.match(line) for line in marked)
    for line in filter(SET_UP.match, every_line):
        command = line.partition(" #")[0].strip()
        if match := re.match(r"make (\S+)$", command):
            assert re.search(rf"^{re.escape(match[1])}:", makefile, re.MULTILINE), line
        elif command.startswith(".venv/bin/python "):
            short = command.removeprefix(".venv/bin/python ").removeprefix("-m pip ")
            assert short in makefile, line
        for extras in re.findall(r"\[([a-z,]+)\]", command):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), line


def test_the_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("\n") <= 250
    assert len(text.split()) <= 2000


def test_the_manual_is_complete() -> None:
    """Every page is there, and the README leads to it."""
    readme = README.read_text(encoding="utf-8")
    for name in MANUAL:
        assert (ROOT / "docs" / f"{name}.md").is_file(), name
        assert f"(docs/{name}.md)" in readme, name


@pytest.mark.parametrize("path", TEXTS, ids=stem)
def test_links_lead_somewhere(path: Path) -> None:
    """Files and headings that the links of a page name; addresses of the web are not asked."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:|mailto:", target):
            continue
        name, _, heading = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), f"{path.name}: {target}"
        if heading and file.suffix == ".md":
            assert heading in _anchors(file), f"{path.name}: {target}"


def _anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


# What runs the blocks must tell a wrong one.


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("<!-- run -->\n```bash\ntrue\n```\n", "run"),
        ("<!-- run: slow -->\n```python\npass\n```\n", "run: slow"),
        ("```bash\ntrue\n```\n", ""),
        ("<!-- run -->\n\n```bash\ntrue\n```\n", ""),
        ("<!-- ran -->\n```bash\ntrue\n```\n", ""),
    ],
)
def test_markers(tmp_path: Path, text: str, marker: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    (block,) = blocks(page)
    assert block.marker == marker
    assert block.output is None


def test_a_failing_block_fails(tmp_path: Path) -> None:
    for language, code in (("bash", "rag-mt index info nowhere"), ("bash", "false"), ("python", "1 / 0")):
        results = run(Block(README, 1, "run", language, code), tmp_path, {})
        assert results[-1].code != 0


def test_lines_run_as_bash_would(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("")
    code = 'echo "no" > x.txt\nrag-mt \\\n  --version > version.txt   # a comment\n# another\ncat version.txt x.txt\n'
    results = run(Block(README, 1, "run", "bash", code), tmp_path, {})
    assert [result.code for result in results] == [0, 0, 0]
    assert re.fullmatch(r"\d+\.\S+\nno\n", results[-1].stdout)
    assert lines("cat > x <<'END'\n# a\n\nEND\ncat x") == ["cat > x <<'END'\n# a\n\nEND", "cat x"]
    missing = run_line('echo "Hallo" | A=1 rag-mt translate --src de *.txt "?.txt" nothing.tsv', tmp_path)
    assert missing.code == 2
    assert one_sentence(missing)
    assert "nothing.tsv" in missing.stderr or "a b.txt" in missing.stderr


def test_other_output_is_told() -> None:
    real = "translating: 50%|###| 1/2 [00:01<00:01]\n  0.704 used Bau -> construction\nopened in 12 ms\n"
    assert likeness("0.704 used  Bau -> construction\nopened in 3 ms\n", real) == 1
    assert likeness("0.704 used  Bau -> construction\n...\n", real) == 1
    assert likeness("The train is late today, says the conductor.\n", real) < ALIKE
