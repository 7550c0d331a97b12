"""TMX memories: segments, filling, safety, new memories."""

from __future__ import annotations

import gzip
import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from lxml import etree

from rag_mt.base.errors import UserError
from rag_mt.base.types import Sentence, Skips, TranslatedText, Translation
from rag_mt.formats.format import Side
from rag_mt.formats.tmx import TMX, Unit, Variant, write_memory

OMEGAT = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx11.dtd">
<!-- exported by hand -->
<tmx version="1.1">
  <header creationtool="OmegaT" o-tmf="OmegaT TMX" adminlang="EN-US" datatype="plaintext" segtype="sentence" \
srclang="de-DE">
    <note>a &lt; b</note>
  </header>
  <body>
    <!-- first -->
    <tu>
      <prop type="file">a/&gt;b.txt</prop>
      <tuv lang="DE-DE">
        <seg>Das Haus ist alt.</seg>
      </tuv>
    </tu>
    <tu>
      <tuv lang="fr">
        <seg>La maison.</seg>
      </tuv>
    </tu>
    <tu>
      <tuv lang="DE-DE">
        <seg>Er kommt &amp; geht.</seg>
      </tuv>
      <tuv lang="EN-US" changeid="eva">
        <seg>Old.</seg>
      </tuv>
    </tu>
  </body>
</tmx>
<!-- last -->
"""
TRADOS = """<?xml version="1.0" encoding="utf-16"?>
<tmx version="1.4"><header srclang="en-US"/><body>
<tu creationid="EVA"><tuv xml:lang="en-US"><seg>Press <bpt i="1" x="1">&lt;b&gt;</bpt>Save<ept i="1">&lt;/b&gt;</ept> \
now<ph x="2">{1}</ph></seg></tuv></tu>
</body></tmx>
"""


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def filled(file: Path, side: str, target: str, translations: list[TranslatedText]) -> bytes:
    out, stream = io.BytesIO(), iter(translations)
    TMX.fill(file, Side(side, target=target), stream, out)
    assert next(stream, None) is None
    return out.getvalue()


def test_one_segment_per_unit_with_the_language(tmp_path: Path) -> None:
    file, skips = write(tmp_path / "a.tmx", OMEGAT), Skips()
    found = list(TMX.segments(file, Side("de"), skips))
    assert [(s.text, s.origin.line) for s in found] == [("Das Haus ist alt.", 10), ("Er kommt & geht.", 21)]
    assert skips.counts == {"no de side": 1}


def test_filling_adds_the_target_and_keeps_the_rest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path / "a.tmx", OMEGAT)
    with caplog.at_level(logging.INFO, "rag_mt"):
        segments = list(TMX.segments(file, Side("de", target="en"), Skips(shown=1)))
    assert [s.text for s in segments] == ["Das Haus ist alt."]
    out = filled(file, "de", "en", [TranslatedText("The house is old.")])
    first = '      <tuv lang="en" creationtool="rag-mt" creationid="rag-mt">\n        <seg>The house is old.</seg>\n'
    assert out.decode() == OMEGAT.replace(
        "alt.</seg>\n      </tuv>\n", f"alt.</seg>\n      </tuv>\n{first}      </tuv>\n"
    )
    assert caplog.messages[1:] == [f"{file}: 1 units have a translation into en already, which is kept"]


@pytest.mark.parametrize(
    ("variant", "target", "expected"),
    [
        ('xml:lang="en"><seg>old</seg>', "en", ["de", "old"]),
        ('xml:lang="en-GB" creationid="eva"><seg>old</seg>', "en", ["de", "old"]),
        ('xml:lang="en-GB"><seg>old</seg>', "en-US", ["de", "new", "old"]),
        ('xml:lang="en"><seg> </seg>', "en", ["de", "new"]),
        ('xml:lang="en-GB"><seg/>', "en", ["de", "new"]),
        ('xml:lang="en" creationtool="rag-mt"><seg>old</seg>', "en", ["de", "new"]),
    ],
)
def test_only_our_own_and_empty_variants_are_replaced(
    tmp_path: Path, variant: str, target: str, expected: list[str]
) -> None:
    unit = f'<tu><tuv xml:lang="de"><seg>de</seg></tuv><tuv {variant}</tuv></tu>'
    file = write(tmp_path / "a.tmx", f"<tmx><header/><body>{unit}</body></tmx>")
    segments = list(TMX.segments(file, Side("de", target=target), Skips(shown=0)))
    assert [s.text for s in segments] == ["de"] * ("new" in expected)
    out = filled(file, "de", target, [TranslatedText("new") for _ in segments])
    assert [s.text for s in etree.fromstring(out).iter("seg")] == expected


def test_windows_line_ends_and_byte_order_mark_stay(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tmx", OMEGAT.replace("\n", "\r\n"), "utf-8-sig")
    out = filled(file, "fr", "en", [TranslatedText("The house.")])
    assert out.startswith(b"\xef\xbb\xbf<?xml")
    assert out.count(b"\r\n") == out.count(b"\n") > 30


def test_codes_of_a_utf16_memory_are_put_back(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tmx", TRADOS, "utf-16")
    (segment,) = TMX.segments(file, Side("en"), Skips())
    assert segment.text == "Press Save now"
    out = filled(file, "en", "de", [TranslatedText("Jetzt Speichern klicken")])
    source, target = etree.fromstring(out).iter("seg")
    assert [(c.tag, c.attrib, c.text) for c in target] == [(c.tag, c.attrib, c.text) for c in source]
    assert "".join(target.itertext()) == "Jetzt <b>Speichern</b> klicken{1}"
    assert b'<?xml version="1.0" encoding="UTF-8"?>' in out


def test_a_failed_translation_adds_no_variant(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tmx", OMEGAT)
    failed = TranslatedText("Das Haus ist alt.", (Translation(Sentence("Das Haus ist alt.", "de"), "x", ok=False),))
    out = filled(file, "de", "en", [failed]).decode()
    assert out == OMEGAT


def test_the_exact_language_is_preferred(tmp_path: Path) -> None:
    tuvs = "".join(f'<tuv xml:lang="{code}"><seg>{code}</seg></tuv>' for code in ("pt-BR", "pt-PT", "en"))
    file = write(tmp_path / "a.tmx", f"<tmx><header/><body><tu>{tuvs}</tu></body></tmx>")
    assert [s.text for s in TMX.segments(file, Side("pt-PT"), Skips())] == ["pt-PT"]
    assert [s.text for s in TMX.segments(file, Side("pt"), Skips())] == ["pt-BR"]
    out = filled(file, "pt-PT", "pt", [])
    assert [s.text for s in etree.fromstring(out).iter("seg")] == ["pt-BR", "pt-PT", "en"]


def resident() -> int:
    """The process's memory in bytes; lxml's trees are not Python's own."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Sink(io.RawIOBase):
    """Counts the units written and keeps the end."""

    units, end = 0, b""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.units += data.count(b"</tu>")
        self.end = (self.end + data)[-100:]
        return len(data)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_translations_are_taken_when_their_place_is_reached_in_little_memory(tmp_path: Path) -> None:
    file, units = tmp_path / "a.tmx.gz", 6_000
    unit = b'<tu>\n<prop>%b</prop><tuv xml:lang="de"><seg>Ein Satz.</seg></tuv>\n</tu>\n' % (b"x" * 10_000)
    with gzip.open(file, "wb", 1) as stream:
        stream.write(b"<tmx version='1.4'><header/><body>\n")
        stream.writelines(unit for _ in range(units))
        stream.write(b"</body></tmx>")
    out, lag, memory = Sink(), [], []

    def translations() -> Iterator[TranslatedText]:
        for taken, segment in enumerate(TMX.segments(file, Side("de"), Skips())):
            lag.append(taken - out.units)
            memory.append(resident())
            yield TranslatedText(segment.text.upper())

    TMX.fill(file, Side("de", target="en"), translations(), out)  # type: ignore[arg-type]
    assert len(lag) == out.units == units
    assert max(lag) <= 1  # a unit is written when the next one begins
    assert memory[-1] - memory[500] < 20e6 < units * len(unit)
    assert out.end.endswith(b"</body></tmx>\n")


BOMB = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdef", "bcdefg", strict=True))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f'<!DOCTYPE tmx [<!ENTITY a "ha">{BOMB}]><tmx><body><tu/>&g;</body></tmx>', "could be an attack"),
        ('<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/hostname">]><tmx>&x;</tmx>', "could be an attack"),
        ('<!DOCTYPE tmx SYSTEM "tmx14.dtd" [<!ENTITY % x SYSTEM "http://x/y">%x;]><tmx/>', "could be an attack"),
        ('<!DOCTYPE tmx [<!ATTLIST seg x CDATA "y">]><tmx/>', "could be an attack"),
        ("<tmx>\n<body>\n<tu></body>\n</tmx>", ":3: not well-formed"),
        ("<tmx>\n<body><tu>&unknown;</tu></body></tmx>", ":2: not well-formed"),
        ("<tmx>\n<body>\n<tu>", ":3: not well-formed"),
        ("just text", ":1: not well-formed"),
        ('<tmx>\n<body a="\n<b">', ":3: not well-formed"),
        ('<tmx xmlns:a="\n\n"/>', "not well-formed XML .xmlns:a: "),
        ('<tmx>\n<body xmlns:a="%zz"><tu/></body></tmx>', ":2: not well-formed XML .xmlns:a: '%zz'"),
        ("", "is empty"),
        ("<xliff/>", "root element is <xliff>, expected <tmx>"),
    ],
)
def test_bad_documents_are_refused_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = write(tmp_path / "a.tmx", text)
    with pytest.raises(UserError, match=sentence) as caught:
        list(TMX.segments(file, Side("de"), Skips()))
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=sentence):
        filled(file, "de", "en", [])


def test_a_written_memory_is_read_again(tmp_path: Path) -> None:
    units = [
        Unit((Variant("de", "Haus <b> & \x00", {"file": "a\x01.txt"}), Variant("en", "house")), {"score": "0.9"}),
        Unit((Variant("de", "Hund"), Variant("en", "dog")), created="20260102T030405Z"),
    ]
    out = io.BytesIO()
    write_memory(out, units, "de")
    path = tmp_path / "memory.tmx"
    path.write_bytes(out.getvalue())
    pairs = [(a.text, b.text) for a, b in TMX.pairs(path, "de", "en", Skips())]
    assert pairs == [("Haus <b> & \ufffd", "house"), ("Hund", "dog")]
    root = etree.fromstring(out.getvalue())
    assert [prop.text for prop in root.iter("prop")] == ["0.9", "a\ufffd.txt"]
    assert [unit.get("creationdate") for unit in root.iter("tu")] == [None, "20260102T030405Z"]
    assert root.find("header").attrib["segtype"] == "sentence"
