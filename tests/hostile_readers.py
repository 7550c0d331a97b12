"""Everything of the project that reads a text of its user, as functions of one string, in a process that can be ended.

A regular expression that runs away holds the interpreter: no exception reaches it, and no thread sees it. Here the
operating system's own timer ends the process when a text has taken its time of the processor, however busy the
machine is with other things.
"""

from __future__ import annotations

import asyncio
import io
import json
import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

Readers = dict[str, Callable[[str], object]]

LONGEST_WAIT = 60.0
"""Seconds by the clock after which a reader that does not even compute is ended."""


def too_slow(tasks: Iterable[tuple[str, str]], load: Callable[[], Readers], seconds: float) -> Iterator[str]:
    """What went wrong with which of the (reader, text): more than `seconds` of the processor's time, or an error that
    is no UserError. `load` gives the readers by name and is called in the other process."""
    remaining = list(tasks)
    while remaining:
        with _process(load, seconds) as theirs:
            while remaining:
                reader, text = remaining.pop()
                theirs.send((reader, text))
                try:
                    wrong = theirs.recv() if theirs.poll(LONGEST_WAIT) else "does not end"
                except EOFError:
                    wrong = f"takes more than {seconds} s"
                if wrong:
                    yield f"{reader}: {text[:40]!r} ... {text[-30:]!r} ({len(text)} characters): {wrong}"
                    break


@contextmanager
def _process(load: Callable[[], Readers], seconds: float) -> Iterator[Connection]:
    """A process with the readers, ready for tasks; ended at the end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, load, seconds), daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.recv() == "ready"
        yield ours
    finally:
        process.kill()
        process.join()


def _serve(tasks: Connection, load: Callable[[], Readers], seconds: float) -> None:
    from rag_mt.base.errors import UserError

    readers = load()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, whatever it holds
    tasks.send("ready")
    while True:
        reader, text = tasks.recv()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        wrong = ""
        try:
            readers[reader](text)
        except UserError:
            pass
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"[:300]
        signal.setitimer(signal.ITIMER_PROF, 0)
        tasks.send(wrong)


def readers() -> Readers:
    """All readers by name; a model's answer and a prompt are texts too."""
    from starlette.exceptions import HTTPException
    from starlette.requests import Request

    from prompts.answers import read_answer
    from prompts.safety import Guard, one_line, restored
    from rag_mt.base.languages import language
    from rag_mt.base.types import Completion, Prompt, Skips, TranslatedText
    from rag_mt.checks.literals import wrong_literals
    from rag_mt.checks.rules import Pair, check
    from rag_mt.formats.document_runs import document_runs, is_heading, passages
    from rag_mt.formats.format import Side
    from rag_mt.formats.html import HtmlText
    from rag_mt.formats.reading import hub_name
    from rag_mt.formats.registry import format_of
    from rag_mt.text.answers import differing_placeholders, without_loop
    from rag_mt.text.splitting import rejoin, split
    from rag_mt.text.words import Terms, surface, word_spans
    from retrievers.ccpr.confidence import _NUMBER
    from retrievers.units.passages import passage_spans, titled
    from ui.server.bodies import TranslateBody
    from ui.server.requests import check_unicode, checked, fields_of
    from ui.server.uploads import safe_suffix, shown_name

    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    prompt = Prompt("German: Das ist gut.\nEnglish: This is good.\n\nHint: a [[b]] c\nGerman: Haus\nEnglish:")
    guard = Guard(["<s>", "</s>", "<unk>", "[INST]", "%%"])
    terms, foreign = Terms("de"), Terms("en")
    for code in ("de", "en", "ja"):
        split("Erst. Dann.", code)

    def file(suffix: str, wrap: Callable[[str], str] = str, column: str = "") -> Callable[[str], object]:
        def read(text: str) -> object:
            path = folder / f"upload{suffix}"
            path.write_bytes(wrap(text).encode("utf-8", "surrogatepass"))
            side = Side("de", column, "en")
            form = format_of(path)
            texts = [TranslatedText(s.text) for s in form.segments(path, side, Skips(shown=0))]
            return form.fill(path, side, iter(texts), io.BytesIO())

        return read

    def documents(text: str) -> object:
        path = folder / "documents.tsv"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        runs = document_runs(path, "de", Skips(shown=0), ("",))
        return [list(passages(document)) for _, document in runs]

    def body(kind: str) -> Callable[[str], object]:
        def read(text: str) -> None:
            content = text.encode("utf-8", "surrogatepass")

            async def receive() -> dict[str, object]:
                return {"type": "http.request", "body": content, "more_body": False}

            headers = [(b"content-type", kind.encode())]
            scope = {"type": "http", "method": "POST", "query_string": content, "headers": headers, "app": None}
            with suppress(HTTPException):  # too many fields: the server answers with 400
                checked(TranslateBody, asyncio.run(fields_of(Request(scope, receive))))

        return read

    def html(text: str) -> object:
        page = HtmlText(text)
        return page.filled(page.text)

    def splitting(code: str) -> Callable[[str], object]:
        def read(text: str) -> object:
            spans = split(text, code)
            return rejoin(text, spans, ["x" for _ in spans])

        return read

    def po(text: str) -> str:
        message = json.dumps(text, ensure_ascii=False)
        return f'msgid ""\nmsgstr ""\n"Plural-Forms: {text[:100]!r}\\n"\n\n# {text}\nmsgid {message}\nmsgstr ""\n'

    def tmx(content: Callable[[str], str]) -> Callable[[str], str]:
        return lambda text: (
            f'<tmx version="1.4"><body><tu><tuv xml:lang="de"><seg>{content(text)}</seg></tuv></tu></body></tmx>'
        )

    def xliff(content: Callable[[str], str]) -> Callable[[str], str]:
        return lambda text: (
            '<xliff version="1.2"><file source-language="de"><body><trans-unit id="1">'
            f"<source>{content(text)}</source></trans-unit></body></file></xliff>"
        )

    def nested(text: str) -> str:
        return "<g>" * 100 + escape(text) + "</g>" * 100

    languages = ("de", "en")
    check(Pair("words of both languages", "words of both languages are loaded by the first such text", *languages))

    return {
        "no suffix": file(""),
        **{suffix: file(suffix) for suffix in (".txt", ".tsv", ".jsonl", ".tmx", ".po", ".xlf", ".html", ".xml")},
        ".tsv with a column": file(".tsv", lambda text: f"de\ten\n{text}\n", "en"),
        ".jsonl of text": file(".jsonl", lambda text: json.dumps({"text": text})),
        ".po of text": file(".po", po),
        ".tmx of text": file(".tmx", tmx(escape)),
        ".tmx of markup": file(".tmx", tmx(str)),
        ".tmx of attributes": file(".tmx", tmx(lambda text: f"<bpt i={quoteattr(text)}/>a")),
        ".xlf of text": file(".xlf", xliff(escape)),
        ".xlf of markup": file(".xlf", xliff(str)),
        ".xlf of codes": file(".xlf", xliff(nested)),
        "documents": documents,
        "heading": is_heading,
        "checks": lambda text: check(Pair(text, text[::-1], *languages)),
        "literals": lambda text: wrong_literals(Pair(text, text[::-1], "fi", "en")),
        "placeholders": lambda text: differing_placeholders(text, text[: len(text) // 2]),
        **{f"splitting {code}": splitting(code) for code in ("de", "en", "ja")},
        "passages": lambda text: passage_spans(titled(text, text), "en"),
        "loops": without_loop,
        "answers": lambda text: read_answer(Completion(text, 9, True), "Das Haus [[a]] ist gut.", prompt),
        "answers of a source": lambda text: read_answer(Completion(prompt.text + text, 9, True), text, prompt),
        "answers of a prompt": lambda text: read_answer(
            Completion("Haus: " + text, 9, False), "Das Haus ist gut.", Prompt(f"[[{text}: \nHaus: a\nEnglish:")
        ),
        "one line": one_line,
        "guard": lambda text: restored(guard.neutral(text), text, guard.neutral(text, brackets=True)),
        "html": html,
        "names": lambda text: (shown_name(text), safe_suffix(text), safe_suffix(text + ".TXT.gz")),
        "json body": body("application/json"),
        "form body": body("application/x-www-form-urlencoded"),
        "unicode": check_unicode,
        "terms": lambda text: (terms.of(text), terms.foreign(text, foreign)),
        "words": lambda text: (word_spans(text), surface(text), _NUMBER.findall(text)),
        "hub names": lambda text: hub_name("hf:" + text),
        "languages": language,
    }
