"""XLIFF documents of several tools: segments, filling, languages."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from lxml import etree

from rag_mt.base.errors import UserError
from rag_mt.base.findings import Finding
from rag_mt.base.types import Sentence, Skips, TranslatedText, Translation
from rag_mt.formats.format import Side
from rag_mt.formats.xliff import XLIFF

XCODE = """<?xml version="1.0" encoding="UTF-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
  <file original="A.strings" source-language="en" target-language="de" datatype="plaintext">
    <header>
      <tool tool-id="com.apple.dt.xcode" tool-name="Xcode"/>
    </header>
    <body>
      <trans-unit id="Save" xml:space="preserve">
        <source>Save %@ now</source>
        <note>Button</note>
      </trans-unit>
      <trans-unit id="Done">
        <source>Done</source>
        <target>Fertig</target>
      </trans-unit>
    </body>
  </file>
  <file original="B.strings" source-language="en-US" datatype="plaintext">
    <body>
      <group translate="no">
        <trans-unit id="1"><source>ID</source></trans-unit>
        <trans-unit id="2" translate="yes"><source>Name</source><target/></trans-unit>
      </group>
      <trans-unit id="3" approved="yes"><source>Kept</source></trans-unit>
      <trans-unit id="4"><source>Copy</source><target state="new">Copy</target></trans-unit>
      <trans-unit id="5"><source> </source></trans-unit>
    </body>
  </file>
</xliff>
"""
ANGULAR = """<?xml version="1.0" encoding="UTF-8" ?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file source-language="en" datatype="plaintext" original="ng2.template">
    <body>
      <trans-unit id="intro" datatype="html">
        <source>Hello <x id="INTERPOLATION" equiv-text="{{name}}"/>, <x id="START_BOLD" ctype="x-b"/>welcome\
<x id="CLOSE_BOLD" ctype="x-b"/>!</source>
        <context-group purpose="location"><context context-type="linenumber">3</context></context-group>
      </trans-unit>
    </body>
  </file>
</xliff>
"""
OKAPI = """<?xml version="1.0" encoding="UTF-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:okp="okapi-framework:xliff-extensions" version="1.2">
<file original="a.docx" source-language="de" target-language="en" okp:inputEncoding="UTF-8"><body>
<trans-unit id="1"><source xml:lang="de">Das <g id="1">alte</g> Haus.</source>\
<seg-source><mrk mid="0" mtype="seg">Das <g id="1">alte</g> Haus.</mrk></seg-source>
<alt-trans><target>An old house.</target></alt-trans></trans-unit>
</body></file></xliff>
"""
V2 = """<?xml version="1.0" encoding="UTF-8"?>
<!-- made by hand -->
<?tool keep?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en">
  <file id="f1">
    <unit id="u1">
      <notes><note>short</note></notes>
      <originalData><data id="d1">&lt;b></data></originalData>
      <segment id="s1">
        <source>Press <pc id="1" dataRefStart="d1">Save</pc> now.</source>
      </segment>
      <ignorable><source> </source></ignorable>
      <segment id="s2"><source>Then wait.</source><target></target></segment>
      <segment id="s3" state="final"><source>Old</source><target>Alt</target></segment>
    </unit>
    <group id="g" translate="no"><unit id="u2"><segment><source>CODE</source></segment></unit></group>
  </file>
</xliff>
<!-- end -->
"""


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def texts(file: Path, language: str) -> list[str]:
    return [s.text for s in XLIFF.segments(file, Side(language), Skips())]


def filled(file: Path, side: str, target: str, translations: list[str]) -> str:
    out, stream = io.BytesIO(), iter([TranslatedText(t) for t in translations])
    XLIFF.fill(file, Side(side, target=target), stream, out)
    assert next(stream, None) is None
    return out.getvalue().decode()


def test_xcode(tmp_path: Path) -> None:
    file = write(tmp_path / "a.xliff", XCODE)
    found = list(XLIFF.segments(file, Side("en"), Skips()))
    assert [(s.text, s.origin.line) for s in found] == [("Save %@ now", 9), ("Name", 22), ("Copy", 25)]
    review = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
    expected = (
        XCODE.replace("now</source>", f"now</source>\n        <target {review}>%@ jetzt sichern</target>")
        .replace("<target/>", f"<target {review}>Name</target>")
        .replace('<target state="new">Copy</target>', f"<target {review}>Kopie</target>")
        .replace('source-language="en-US" datatype="plaintext"', "{}")
        .replace("{}", 'source-language="en-US" datatype="plaintext" target-language="de"')
    )
    assert filled(file, "en", "de", ["%@ jetzt sichern", "Name", "Kopie"]) == expected


def test_angular_codes_stay_in_order(tmp_path: Path) -> None:
    file = write(tmp_path / "a.xlf", ANGULAR)
    assert texts(file, "en") == ["Hello , welcome!"]
    out = filled(file, "en", "de", ["Hallo , willkommen!"])
    target = etree.fromstring(out.encode()).find(".//{*}target")
    assert [x.get("id") for x in target] == ["INTERPOLATION", "START_BOLD", "CLOSE_BOLD"]
    assert "".join(target.itertext()) == "Hallo , willkommen!"
    again = filled(file, "en", "de", texts(file, "en"))
    source, target = (etree.fromstring(again.encode()).find(f".//{{*}}{name}") for name in ("source", "target"))
    assert [(x.attrib, x.tail) for x in source] == [(x.attrib, x.tail) for x in target]


def test_okapi(tmp_path: Path) -> None:
    file = write(tmp_path / "a.xlf", OKAPI)
    assert texts(file, "de") == ["Das alte Haus."]
    out = filled(file, "de", "en", ["The old house."])
    assert (
        '</seg-source><target xml:lang="en" state="needs-review-translation" state-qualifier="mt-suggestion">'
        '<mrk mid="0" mtype="seg">The <g id="1">old</g> house.</mrk></target>\n<alt-trans>' in out
    )
    assert 'okp:inputEncoding="UTF-8"' in out


def test_version_2(tmp_path: Path) -> None:
    file = write(tmp_path / "a.xlf", V2)
    assert texts(file, "en") == ["Press Save now.", "Then wait."]
    out = filled(file, "en", "de", ["Jetzt sichern.", "Dann warten."])
    expected = (
        V2.replace('srcLang="en"', 'srcLang="en" trgLang="de"')
        .replace("&lt;b>", "&lt;b&gt;")
        .replace('<segment id="s1">', '<segment id="s1" state="initial" subState="rag-mt:placed-codes">')
        .replace('<segment id="s2">', '<segment id="s2" state="translated">')
        .replace("<target></target>", "<target>Dann warten.</target>")
    )
    assert out.replace(out[out.index("        <target>") : out.index("      </segment>")], "") == expected
    assert '<target>Jetzt <pc id="1" dataRefStart="d1">sichern.</pc></target>' in out


def test_targets_are_read_to_build_an_index(tmp_path: Path) -> None:
    text = XCODE.replace('"en-US" datatype', '"en-US" target-language="de-DE" datatype')
    assert texts(write(tmp_path / "a.xlf", text), "de") == ["Fertig"]
    assert texts(write(tmp_path / "b.xlf", V2.replace('"en"', '"en" trgLang="de"')), "de") == ["Alt"]


def test_an_unusable_translation_leaves_the_unit_untranslated(tmp_path: Path) -> None:
    file, out = write(tmp_path / "a.xlf", OKAPI), io.BytesIO()
    failed = TranslatedText("Das", (Translation(Sentence("Das", "de"), "Das", ok=False),))
    XLIFF.fill(file, Side("de", target="en"), iter([failed]), out)
    assert out.getvalue().decode() == OKAPI


def test_encoding_mark_and_line_ends_stay(tmp_path: Path) -> None:
    file = write(tmp_path / "a.xlf", OKAPI.replace("\n", "\r\n"), "utf-8-sig")
    out = filled(file, "de", "en", ["The"])
    assert out.startswith("\ufeff<?xml") and out.count("\r\n") == out.count("\n") > 5
    latin = write(tmp_path / "b.xlf", OKAPI.replace('encoding="UTF-8"', 'encoding="ISO-8859-1"'), "latin-1")
    out_bytes = io.BytesIO()
    XLIFF.fill(latin, Side("de", target="en"), iter([TranslatedText("ü ž")]), out_bytes)
    assert "ž" in "".join(etree.fromstring(out_bytes.getvalue()).itertext())


@pytest.mark.parametrize(
    ("text", "side", "target", "sentence"),
    [
        (XCODE, "fr", "de", "its source-language is 'en', not 'fr': give --src en"),
        (V2, "fr", "de", "its srcLang is 'en', not 'fr'"),
        (XCODE, "en", "fr", "its target-language is 'de', not 'fr': give --tgt de"),
        (OKAPI, "en", "de", "'en' is its target-language, but its sources are 'de'"),
        (V2.replace('version="2.0"', 'version="3.0"', 1), "en", "de", "version '3.0' is not known"),
        (V2.replace("<xliff xmlns", '<!DOCTYPE x [<!ENTITY a "b">]><xliff xmlns'), "en", "de", "could be an attack"),
        (
            XCODE.replace("<xliff xmlns", "<!DOCTYPE x [<!ATTLIST y z CDATA ''>]><xliff xmlns"),
            "en",
            "de",
            "could be an attack",
        ),
        (V2.replace("</notes>", ""), "en", "de", r"a\.xlf:\d+: not well-formed XML"),
        ('<xliff xmlns:a="\n\n"/>', "en", "de", "not well-formed XML .xmlns:a: "),
        ("<tmx/>", "en", "de", "expected <xliff>"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, side: str, target: str, sentence: str) -> None:
    file = write(tmp_path / "a.xlf", text)
    with pytest.raises(UserError, match=sentence):
        list(XLIFF.segments(file, Side(side, target=target), Skips()))
    with pytest.raises(UserError, match=sentence):
        filled(file, side, target, texts(file, side))


@pytest.mark.parametrize(("text", "side", "target"), [(XCODE, "en", "de-AT"), (V2, "en", "fr"), (OKAPI, "de", "en")])
def test_what_can_be_filled_is_read_for_its_target(tmp_path: Path, text: str, side: str, target: str) -> None:
    assert list(XLIFF.segments(write(tmp_path / "a.xlf", text), Side(side, target=target), Skips()))


def test_each_segment_of_a_seg_source_keeps_its_mark(tmp_path: Path) -> None:
    cut = (
        '<mrk mid="0" mtype="seg">Das <g id="1">alte</g> Haus.</mrk> <mrk mid="1" mtype="seg">Es steht.</mrk>'
        '<x id="2"/><mrk mid="2" mtype="seg"><x id="3"/></mrk>'
    )
    whole = OKAPI[: OKAPI.index("<seg-source>")] + f"<seg-source>{cut}" + OKAPI[OKAPI.index("</seg-source>") :]
    file = write(tmp_path / "a.xlf", whole)
    assert texts(file, "de") == ["Das alte Haus.", "Es steht."]
    out = filled(file, "de", "en", ["The old house.", "It stands."])
    target = out[out.index("<target") : out.index("</target>")]
    assert target.split(">", 1)[1] == (
        '<mrk mid="0" mtype="seg">The <g id="1">old</g> house.</mrk> <mrk mid="1" mtype="seg">It stands.</mrk>'
        '<x id="2"/><mrk mid="2" mtype="seg"><x id="3"/></mrk>'
    )
    assert 'xml:lang="en"' in target and cut in out


def test_a_unit_with_a_failed_segment_stays_open(tmp_path: Path) -> None:
    mark = '<mrk mid="1" mtype="seg">Es steht.</mrk></seg-source>'
    file = write(tmp_path / "a.xlf", OKAPI.replace("</seg-source>", mark))
    failed = TranslatedText("x", (Translation(Sentence("x", "de"), "x", ok=False),))
    out = io.BytesIO()
    XLIFF.fill(file, Side("de", target="en"), iter([TranslatedText("The old house."), failed]), out)
    assert "needs-review" not in out.getvalue().decode() and "<mrk" not in out.getvalue().decode().split("</seg-")[1]


NUMBER, END = Finding("numbers", "error", "number lost: 5 <b>"), Finding("ends", "warning", "no full stop")


def filled_with(file: Path, *findings: tuple[Finding, ...]) -> str:
    translations = (TranslatedText(f"Text {n}", findings=found) for n, found in enumerate(findings))
    out = io.BytesIO()
    XLIFF.fill(file, Side("en", target="de"), translations, out)
    return out.getvalue().decode()


def test_findings_are_notes_of_a_unit(tmp_path: Path) -> None:
    file = write(tmp_path / "a.xliff", XCODE)
    once = filled_with(file, (NUMBER, END), (), (END,))
    first, kept = etree.fromstring(once.encode()).iter("{*}note"), "<note>Button</note>"
    assert [(n.get("from"), n.text) for n in first] == [
        ("rag-mt check", "error: number lost: 5 <b> [numbers]"),
        ("rag-mt check", "warning: no full stop [ends]"),
        (None, "Button"),
        ("rag-mt check", "warning: no full stop [ends]"),
    ]
    assert kept in once and '</target>\n        <note from="rag-mt check" annotates="target">error' in once
    again = write(tmp_path / "b.xliff", once.replace("needs-review-translation", "new"))
    assert filled_with(again, (NUMBER, END), (), (END,)) == once, "notes are replaced, not added"
    assert filled_with(again, (), (), ()).count("<note") == 1
    assert filled_with(again, (), (), ()) == filled_with(file, (), (), ())


@pytest.mark.parametrize("notes", ["      <notes><note>short</note></notes>\n", ""])
def test_findings_are_notes_on_a_segment(tmp_path: Path, notes: str) -> None:
    document = V2.replace("      <notes><note>short</note></notes>\n", notes)
    file = write(tmp_path / "a.xlf", document)
    once = filled_with(file, (NUMBER, END), (END,))
    (unit,) = (e for e in etree.fromstring(once.encode()).iter("{*}unit") if e.get("id") == "u1")
    assert [etree.QName(e).localname for e in unit][:3] == ["notes", "originalData", "segment"]
    own = [note for note in unit[0] if note.get("category") == "rag-mt check"]
    assert [(note.get("id"), note.get("appliesTo")) for note in own] == [
        ("rag-mt-check-1-1", "target"), ("rag-mt-check-1-2", "target"), ("rag-mt-check-2-1", "target"),
    ]  # fmt: skip
    assert own[0].text == "error: number lost: 5 <b> [numbers]"
    second = "<target>Text 1</target>"
    assert second in once
    again = write(tmp_path / "b.xlf", once.replace(second, "<target/>"))
    told = etree.fromstring(filled_with(again, (NUMBER,)).encode()).iter("{*}note")
    assert sorted(note.get("id") or "" for note in told) == [
        *([""] if notes else []), "rag-mt-check-1-1", "rag-mt-check-1-2", "rag-mt-check-2-1",
    ]  # fmt: skip
    assert "number lost" not in filled_with(write(tmp_path / "c.xlf", document), (), ())
    assert filled_with(file, (), ()).count("<notes>") == bool(notes)
