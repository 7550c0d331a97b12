"""The translations that files have already, each with its original, in all formats of both languages."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Sentence, Skips, TranslatedText, Translation
from rag_mt.formats.format import Side
from rag_mt.formats.registry import FORMATS, format_of

PO = r"""
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\nLanguage: de\nPlural-Forms: nplurals=2; plural=(n != 1);\n"

msgid "Open the file"
msgstr "Datei öffnen"

#, fuzzy
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid "Close"
msgstr ""
"""
XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
  <file original="a" source-language="en" target-language="de" datatype="plaintext"><body>
    <trans-unit id="1"><source>Open the <g id="1">file</g></source><target>Datei öffnen</target></trans-unit>
    <trans-unit id="2"><source>%d files</source><target state="translated">%d Dateien</target></trans-unit>
    <trans-unit id="3"><source>Close</source></trans-unit>
  </body></file>
</xliff>
"""
TMX = """<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>Open the file</seg></tuv><tuv xml:lang="de"><seg>Datei öffnen</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>%d files</seg></tuv><tuv xml:lang="de-AT"><seg>%d Dateien</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Close</seg></tuv></tu>
</body></tmx>
"""
BOTH = [("Open the file", "Datei öffnen"), ("%d files", "%d Dateien")]


def read(path: Path, side: Side, skips: Skips | None = None) -> list[tuple[str, str, int]]:
    found = format_of(path).translations(path, side, skips or Skips(shown=0))
    return [(segment.original, segment.text, segment.origin.line) for segment in found]


@pytest.mark.parametrize(("name", "text", "lines"), [("a.xlf", XLIFF, [4, 5]), ("a.tmx", TMX, [2, 3])])
def test_units_with_both_languages(name: str, text: str, lines: list[int], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert read(path, Side("en", "", "de")) == [(*pair, line) for pair, line in zip(BOTH, lines, strict=True)]


def test_messages_finished_or_fuzzy_with_all_forms(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text(PO, encoding="utf-8")
    assert [row[:2] for row in read(path, Side("en", "", "de"))] == [BOTH[0], ("%d file", "%d Datei"), BOTH[1]]
    with pytest.raises(UserError, match="de"):
        read(path, Side("en", "", "fi"))


@pytest.mark.parametrize(
    ("text", "side", "rows"),
    [
        ("en\tde\nOne\tEins\nTwo\t\n", Side("en", "", "de"), [("One", "Eins", 2), ("Two", "", 3)]),
        ("note\tde\ten\nx\tEins\tOne\n", Side("en", "", "de"), [("One", "Eins", 2)]),
        ("id\ttext\ttranslation\tnote\n1\tOne\tEins\tx\n", Side("en", "text", "de"), [("One", "Eins", 2)]),
        (
            "One more\tNoch einer\n\tx\nTwo more\n",
            Side("en", "", "de"),
            [("One more", "Noch einer", 1), ("Two more", "", 3)],
        ),
        ("One more\tx\tNoch einer\n", Side("en", "1", "de", "3"), [("One more", "Noch einer", 1)]),
    ],
)
def test_tables(text: str, side: Side, rows: list[tuple[str, str, int]], tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(text, encoding="utf-8")
    assert read(path, side) == rows


def test_records(tmp_path: Path) -> None:
    path, skips = tmp_path / "a.jsonl", Skips(shown=0)
    lines = ['{"text": "One", "translation": "Eins"}', '{"en": "Two", "de": "Zwei", "translation": "?"}']
    lines += ['{"translation": {"en": "Three", "de": "Drei"}}', '{"text": "Four"}', '{"text": "Five", "mt": "Fünf"}']
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert read(path, Side("en", "", "de"), skips) == [("One", "Eins", 1), ("Two", "Zwei", 2), ("Three", "Drei", 3)]
    assert sum(skips.counts.values()) == 2
    assert read(path, Side("en", "", "de", "mt")) == [("Five", "Fünf", 5)]


def test_records_whose_translation_cannot_be_written(tmp_path: Path) -> None:
    path, skips = tmp_path / "a.jsonl", Skips(shown=0)
    lines = [r'{"en": "One", "de": "Eins \ud800"}', r'{"en": "Two", "de": "Zwei\u0000"}']
    path.write_text("\n".join([*lines, r'{"en": "Three", "de": "Drei\n\tDrei"}']), encoding="utf-8")
    assert read(path, Side("en", "", "de"), skips) == [("Three", "Drei\n\tDrei", 3)]
    assert skips.counts == {"noncharacter or unpaired surrogate": 1, "control character": 1}


def test_a_plain_text_holds_one_language(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("One\n", encoding="utf-8")
    with pytest.raises(UserError, match="give two files"):
        read(path, Side("en", "", "de"))


OPEN = {
    "tsv": "en\nOne house\nTwo houses\n",
    "jsonl": '{"en": "One house"}\n{"en": "Two houses"}\n',
    "po": PO.replace('"Datei öffnen"', '""').replace('"%d Datei"', '""').replace('"%d Dateien"', '""'),
    "xliff": XLIFF.replace("<target>Datei öffnen</target>", ""),
    "tmx": TMX.replace('<tuv xml:lang="de"><seg>Datei öffnen</seg></tuv>', ""),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_was_filled_in_is_read_again(name: str, tmp_path: Path) -> None:
    form, side = FORMATS[name], Side("en", "", "de")
    path, filled = (tmp_path / f"{stem}{form.suffixes[0]}" for stem in ("open", "filled"))
    path.write_text(OPEN[name], encoding="utf-8")
    sources = [segment.text for segment in form.segments(path, side, Skips(shown=0))]

    def translations() -> Iterator[TranslatedText]:
        for source in sources:
            yield TranslatedText(source.upper(), (Translation(Sentence(source, "en"), source.upper()),))

    out = io.BytesIO()
    form.fill(path, side, translations(), out)
    filled.write_bytes(out.getvalue())
    found = {(original, text) for original, text, _ in read(filled, side)}
    assert sources and {(source, source.upper()) for source in sources} <= found
