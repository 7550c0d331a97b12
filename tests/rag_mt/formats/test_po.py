"""gettext catalogues: segments, filling, what stays."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest
from babel.messages.pofile import read_po
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.base.types import Sentence, Skips, TranslatedText, Translation
from rag_mt.formats.format import Side
from rag_mt.formats.po import PO, quoted, read_catalog

CATALOG = r"""# Translations of the tool.
#, fuzzy
msgid ""
msgstr ""
"Project-Id-Version: tool 1.0\n"
"Language: \n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);\n"

#. shown on the button
#: src/main.c:10
#, c-format
msgctxt "menu"
msgid "Save %s"
msgstr ""

msgid "Kept"
msgstr "Behalten ... a long line that is wrapped in a way "
"of its own"

#, fuzzy
#| msgid "Old \"text\""
msgid ""
"New \"text\"\n"
"with two lines\n"
msgstr ""

#, fuzzy
msgid "Awaits a review"
msgstr "Wartet"

#| msgid "Filed"
msgid "File"
msgstr ""
#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#~ msgid "Gone"
#~ msgstr ""
"""


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def segments(file: Path, language: str = "en") -> list[tuple[int, str]]:
    return [(s.origin.line, s.text) for s in PO.segments(file, Side(language), Skips())]


def filled(file: Path, target: str, translations: list[str], side: str = "en") -> bytes:
    out, stream = io.BytesIO(), iter([TranslatedText(t) for t in translations])
    PO.fill(file, Side(side, target=target), stream, out)
    assert next(stream, None) is None
    return out.getvalue()


def test_untranslated_messages_are_segments(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path / "a.po", CATALOG)
    text = 'New "text"\nwith two lines\n'
    caplog.set_level(logging.INFO, "rag_mt")
    assert segments(file) == [(14, "Save %s"), (23, text), (33, "File"), (36, "%d file"), (36, "%d files")]
    assert "messages that have a translation and are kept: 2 (1 fuzzy)" in caplog.text


def test_what_was_filled_is_kept_by_a_second_run(tmp_path: Path) -> None:
    half = 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "ä"\nmsgstr[1] ""\n\nmsgid "c"\nmsgstr ""\n'
    once = filled(write(tmp_path / "a.po", half), "de", ["1", "2", "3"])
    again = tmp_path / "b.po"
    again.write_bytes(once)
    assert 'msgstr[0] "ä"\nmsgstr[1] "2"\n'.encode() in once, "the form that was there stays"
    assert once.count(b"#, fuzzy") == 2
    assert segments(again) == [] and filled(again, "de", []) == once


def test_filled_messages_are_fuzzy_and_all_other_lines_stay(tmp_path: Path) -> None:
    file = write(tmp_path / "a.po", CATALOG)
    new = ["Сохранить %s", "Новый «текст»\nв две строки", "Файл", "%d файл", "%d файлов"]
    expected = (
        CATALOG.replace('"Language: \\n"', '"Language: ru\\n"')
        .replace("#, c-format\n", "#, fuzzy, c-format\n")
        .replace('Save %s"\nmsgstr ""', 'Save %s"\nmsgstr "Сохранить %s"')
        .replace('lines\\n"\nmsgstr ""', 'lines\\n"\nmsgstr ""\n"Новый «текст»\\n"\n"в две строки\\n"')
        .replace('#| msgid "Filed"', '#, fuzzy\n#| msgid "Filed"')
        .replace('"File"\nmsgstr ""', '"File"\nmsgstr "Файл"')
        .replace('msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "%d файл"\nmsgstr[1] "%d файлов"\nmsgstr[2] "%d файлов"')
    )
    out = filled(file, "ru", new)
    assert out.decode() == expected
    windows = write(tmp_path / "b.po", CATALOG.replace("\n", "\r\n"), "utf-8-sig")
    assert filled(windows, "ru", new) == expected.replace("\n", "\r\n").encode("utf-8-sig")


def test_a_template_without_header_fields_gets_them(tmp_path: Path) -> None:
    pot = (
        'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=CHARSET\\n"\n\n'
        'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    )
    out = filled(write(tmp_path / "a.pot", pot), "cs", ["á", "č"])
    catalog = read_po(io.BytesIO(out))
    assert catalog.charset == "utf-8" and str(catalog.locale) == "cs" and catalog.num_plurals == 3
    assert catalog["a"].string == ("á", "č", "č") and catalog["a"].fuzzy
    bare = read_po(io.BytesIO(filled(write(tmp_path / "b.po", 'msgid "a"\nmsgstr ""\n'), "pt-BR", ["ã"])))
    assert bare["a"].string == "ã" and str(bare.locale) == "pt_BR"


def test_an_encoding_that_cannot_hold_the_translation_becomes_utf8(tmp_path: Path) -> None:
    text = CATALOG.replace("UTF-8", "ISO-8859-1").replace("Kept", "Gemüse")
    file = write(tmp_path / "a.po", text, "latin-1")
    kept = filled(file, "de", ["ä"] * 5)
    assert "Gemüse".encode("latin-1") in kept and b"charset=ISO-8859-1" in kept
    changed = filled(file, "cs", ["ř"] * 5)
    assert "Gemüse" in changed.decode() and b"charset=UTF-8" in changed


def test_translations_are_read_to_build_an_index(tmp_path: Path) -> None:
    text = CATALOG.replace("Language: ", "Language: de_DE").replace(
        'msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "a"\nmsgstr[1] "b"'
    )
    found = segments(write(tmp_path / "a.po", text), "de")
    assert found == [(18, "Behalten ... a long line that is wrapped in a way of its own"), (38, "a"), (38, "b")]


def test_an_unusable_translation_leaves_the_message_open(tmp_path: Path) -> None:
    file, out = write(tmp_path / "a.po", 'msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "a"\nmsgstr ""\n'), io.BytesIO()
    failed = TranslatedText("a", (Translation(Sentence("a", "en"), "a", ok=False),))
    PO.fill(file, Side("en", target="de"), iter([failed]), out)
    assert b'msgid "a"\nmsgstr ""\n' in out.getvalue() and b"fuzzy" not in out.getvalue()


def test_unusual_line_separators_are_text(tmp_path: Path) -> None:
    file = write(tmp_path / "a.po", 'msgid "a\u2028b\u0085c"\nmsgstr ""\n')
    assert segments(file) == [(1, "a\u2028b\u0085c")]


def test_spellings_that_gettext_reads_are_read(tmp_path: Path) -> None:
    text = (
        '#no space\n#,fuzzy,c-format\nmsgid"\\033[1m \\x41\\a"\nmsgstr ""\n#= sticky\n#,\nmsgctxt "c"\n"d"\n'
        '  msgid\t"b" \n# between\nmsgstr ""\n""\n#, fuzzy\n#~msgid "old"\n#~\n#~msgstr ""\n'
        'msgid "n"\nmsgid_plural ""\nmsgstr[0] ""\n\n#: end\n#,\n#~| msgid "x"\n'
    )
    file = write(tmp_path / "a.po", text)
    assert segments(file) == [(3, "\x1b[1m A\a"), (9, "b"), (17, "n")]
    out = filled(file, "ja", ["1", "2", "3"]).decode()
    expected = text.replace('""\n#=', '"1"\n#=').replace('msgctxt "c"', '#, fuzzy\nmsgctxt "c"')
    expected = expected.replace('msgstr ""\n""', 'msgstr "2"').replace('[0] ""', '[0] "3"')
    assert out[out.index("#no") :] == expected.replace('msgid "n"', '#, fuzzy\nmsgid "n"')


def test_a_catalogue_that_does_not_wrap_is_not_wrapped(tmp_path: Path) -> None:
    long = "word " * 30 + "end"
    header = 'msgid ""\nmsgstr "Language: de\\nContent-Type: text/plain; charset=UTF-8\\n"\n\n'
    open_ended = write(tmp_path / "a.po", f'{header}msgid "{long}"\nmsgstr ""\n')
    assert f'msgstr "{long}"\n'.encode() in filled(open_ended, "de", [long])
    wrapped = write(tmp_path / "b.po", 'msgid "a"\nmsgstr ""\n')
    lines = filled(wrapped, "de", [long]).decode().splitlines()
    assert max(map(len, lines)) <= 79
    assert read_po(io.BytesIO("\n".join(lines).encode()))["a"].string == long


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), st.sampled_from([0, 79]))
def test_any_text_comes_back_from_its_quoted_lines(
    tmp_path_factory: pytest.TempPathFactory, text: str, width: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "quoted.po"
    forms = [text.replace("\0", ""), "x"]
    lines = ['msgid "a"\n', 'msgid_plural "b"\n', *quoted(forms, True, width, "\n")]
    file.write_bytes("".join(lines).encode())
    (message,) = read_catalog(file).messages
    assert message.forms == forms


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('msgid "a"\nmsgstr "b\n', ":2: not a valid PO file"),
        ('msgid "a"\n\nmsgid "b"\nmsgstr ""\n', ":3: not a valid PO file"),
        ('"a"\n', ":1: not a valid PO file"),
        ('msgid "a"\n', ":1: not a valid PO file .an entry without msgstr"),
        ('msgstr "a"\n', ":1: not a valid PO file"),
        ('msgid "a"\nmsgstr[0] b\n', ":2: not a valid PO file"),
        ('msgid "a"\nmsgstr "b" c\n', ":2: not a valid PO file"),
        ("Hello\nthere\n", ":1: not a valid PO file"),
        (CATALOG.replace("UTF-8", "klingon"), "charset 'klingon' is not known"),
        (CATALOG.replace("nplurals=3", "nplurals=999"), "Plural-Forms of 999 forms"),
        (CATALOG.replace("n%10==1", "n!!1"), "cannot be read"),
        (CATALOG.replace("Language: ", "Language: fr"), "its Language is 'fr', not 'de': give --tgt fr"),
        (CATALOG.replace("Language: ", "Language: en"), "its Language is 'en', so its messages are no 'en' text"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, text: str, sentence: str) -> None:
    file = write(tmp_path / "a.po", text)
    with pytest.raises(UserError, match=sentence):
        list(PO.segments(file, Side("en", target="de"), Skips()))
    with pytest.raises(UserError, match=sentence):
        filled(file, "de", [t for _, t in segments(file)])


def test_a_catalogue_that_can_be_filled_is_read_for_its_target(tmp_path: Path) -> None:
    for text in (CATALOG, CATALOG.replace("Language: ", "Language: ru_RU")):
        found = list(PO.segments(write(tmp_path / "a.po", text), Side("en", target="ru"), Skips()))
        assert len(found) == 5


def test_text_in_another_charset_than_the_header_says(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=":17: not valid UTF-8 text"):
        segments(write(tmp_path / "a.po", CATALOG.replace("Kept", "ä"), "latin-1"))
