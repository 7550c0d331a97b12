"""Glossaries in TBX: version 2 and 3, statuses, notes, and hostile documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.terms import Term
from rag_mt.base.types import Skips
from rag_mt.glossary.reading import read_glossary

VERSION_2 = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE martif SYSTEM "TBXcoreStructV02.dtd">
<martif type="TBX-Basic" xml:lang="en"><martifHeader><fileDesc><sourceDesc><p>x</p></sourceDesc></fileDesc>
</martifHeader><text><body>
<termEntry id="1">
  <descripGrp><descrip type="definition">A  machine</descrip><source>x</source></descripGrp>
  <langSet xml:lang="de"><tig><term>Rechner</term></tig><tig><term>EDV-Anlage</term></tig></langSet>
  <langSet xml:lang="en-US">
    <tig><term>computer</term><termNote type="administrativeStatus">preferredTerm-admn-sts</termNote></tig>
    <ntig><termGrp><term><hi>data</hi> processor</term><termNote type="administrativeStatus">supersededTerm-admn-sts\
</termNote></termGrp></ntig>
    <tig><term>brain</term><termNote type="usage">forbidden</termNote><note>never</note></tig>
  </langSet>
  <langSet xml:lang="fr"><descrip type="definition">une machine</descrip><tig><term>ordinateur</term></tig></langSet>
</termEntry>
<termEntry id="2"><langSet xml:lang="de"><tig><term>Haus</term></tig></langSet></termEntry>
<termEntry id="3"><langSet xml:lang="de"><tig><term> </term></tig></langSet>
<langSet xml:lang="en"><tig><term>dog</term></tig></langSet></termEntry>
</body></text></martif>
"""
VERSION_3 = """<?xml version="1.0" encoding="UTF-8"?>
<tbx type="TBX-Basic" style="dct" xml:lang="en" xmlns="urn:iso:std:iso:30042:ed-2"
 xmlns:basic="http://www.tbxinfo.net/ns/basic" xmlns:min="http://www.tbxinfo.net/ns/min">
<tbxHeader/><text><body>
<conceptEntry id="1"><basic:definition>A building</basic:definition>
  <langSec xml:lang="de"><termSec><term>Haus</term>
    <min:administrativeStatus>deprecatedTerm-admn-sts</min:administrativeStatus></termSec></langSec>
  <langSec xml:lang="en"><!-- first -->
    <termSec><term>house</term></termSec>
    <termSec><term>hose</term><min:administrativeStatus>deprecatedTerm-admn-sts</min:administrativeStatus></termSec>
    <termSec><term>home</term><note>rarely</note></termSec></langSec>
</conceptEntry></body></text></tbx>
"""


def terms(folder: Path, text: str, pair: str = "de-en", skips: Skips | None = None) -> list[Term]:
    path = folder / "terms.tbx"
    path.write_text(text, "utf-8")
    return list(read_glossary([path], *pair.split("-"), skips or Skips(shown=0)).terms)


def test_version_2(tmp_path: Path) -> None:
    skips = Skips(shown=0)
    first, second = terms(tmp_path, VERSION_2, skips=skips)
    assert (first.source, second.source) == ("Rechner", "EDV-Anlage")
    assert first.allowed == second.allowed == ("computer",)
    assert first.forbidden == ("data processor", "brain")
    assert first.note == "A machine; never"
    assert first.origin.line == 5
    assert skips.counts == {"no en side": 1, "no term": 1}


def test_version_3_with_data_categories_as_elements(tmp_path: Path) -> None:
    (term,) = terms(tmp_path, VERSION_3)
    assert (term.source, term.allowed, term.forbidden) == ("Haus", ("house", "home"), ("hose",))
    assert term.note == "A building; rarely"
    assert [t.source for t in terms(tmp_path, VERSION_3, "en-de", Skips(shown=0))] == ["house", "hose", "home"]


def test_other_languages_of_the_file(tmp_path: Path) -> None:
    (term,) = terms(tmp_path, VERSION_2, "fr-de")
    assert (term.source, term.allowed, term.note) == ("ordinateur", ("Rechner", "EDV-Anlage"), "A machine; une machine")


BOMB = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (VERSION_2.replace('"de"', '"sv"'), "no concept in both de and en: its languages are sv, en-US, fr, en;"),
        (
            f'<!DOCTYPE martif [<!ENTITY a "ha">{BOMB}]><martif><termEntry>&i;</termEntry></martif>',
            "could be an attack",
        ),
        ('<!DOCTYPE tbx [<!ENTITY x SYSTEM "file:///etc/hostname">]><tbx>&x;</tbx>', "could be an attack"),
        ('<!DOCTYPE tbx SYSTEM "a.dtd" [<!ENTITY % x SYSTEM "http://x/y">%x;]><tbx/>', "could be an attack"),
        ("<tmx/>", "root element is <tmx>, expected <martif> or <tbx>: give a TBX file"),
        ("", "is empty: expected a TBX document"),
        ("<tbx>\n<conceptEntry>\n</tbx>", ":3: not well-formed"),
        ("<tbx>" + "<a>" * 100_000, "not well-formed"),
        ("<tbx>&unknown;</tbx>", "not well-formed"),
        ("de,en\n", "not well-formed"),
        ("<tbx>\x00</tbx>", "not well-formed"),
        ("<tbx><conceptEntry><conceptEntry/></conceptEntry></tbx>", "its languages are none"),
        ("<tbx><conceptEntry>" + "<langSec xml:lang='xx-1'/>" * 9999 + "</conceptEntry></tbx>", "languages are none"),
    ],
)
def test_what_is_no_glossary_is_told_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        terms(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_damaged_end_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not well-formed"):
        terms(tmp_path, VERSION_2[:-30])
