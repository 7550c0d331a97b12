"""Where terms occur in source sentences."""

from __future__ import annotations

import unicodedata

import pytest

from rag_mt.base.terms import Term
from rag_mt.glossary.glossary import Glossary


def glossary(code: str, *terms: str) -> Glossary:
    """Terms, a case-sensitive one with `=` before it."""
    target = "en" if code != "en" else "de"
    made = [Term(t.removeprefix("="), code, target, ("x",), case_sensitive=t.startswith("=")) for t in terms]
    return Glossary(code, target, tuple(made))


def matched(code: str, text: str, *terms: str) -> list[str]:
    """`term=words of the text`, with ~ for a part of a compound."""
    return [
        f"{m.term.source}{'~' if m.in_compound else '='}{m.span.of(text)}" for m in glossary(code, *terms).matches(text)
    ]


@pytest.mark.parametrize(
    ("code", "text", "terms", "expected"),
    [
        ("de", "Die Verträge der Rechner.", ["Rechner", "Vertrag"], ["Vertrag=Verträge", "Rechner=Rechner"]),
        ("de", "SIE KAUFTEN DATENBANKEN!", ["Datenbank"], ["Datenbank=DATENBANKEN"]),
        ("de", "Die Rechnung ist alt.", ["Rechner"], []),
        ("de", "Rechner um Rechner", ["Rechner"], ["Rechner=Rechner", "Rechner=Rechner"]),
        ("en", "He went by computers.", ["go", "computer"], ["go=went", "computer=computers"]),
        ("en", "The computer's mice.", ["computer", "mouse"], ["computer=computer", "mouse=mice"]),
        ("en", "computing computation", ["computer"], []),
        ("en", "Blockchains and chatbots", ["blockchain", "chatbot"], ["blockchain=Blockchains", "chatbot=chatbots"]),
        ("cs", "Bez smlouvy na počítačích", ["počítač", "smlouva"], ["smlouva=smlouvy", "počítač=počítačích"]),
        ("fi", "Tietokoneella on hinta.", ["tietokone", "hinta"], ["tietokone=Tietokoneella", "hinta=hinta"]),
        ("ru", "Счёта и договоров нет", ["счет", "договор"], ["счет=Счёта", "договор=договоров"]),
        (
            "ro",
            "Contractele de pe calculatoare",
            ["contract", "calculator"],
            ["contract=Contractele", "calculator=calculatoare"],
        ),
        ("tr", "İstanbul'da kitapları", ["istanbul", "kitap"], ["istanbul=İstanbul", "kitap=kitapları"]),
        ("tr", "sınır", ["sinir"], []),
        ("eu", "Liburuak eta LIBURU", ["liburu"], ["liburu=Liburuak", "liburu=LIBURU"]),
        ("vi", "con ma và má", ["má"], ["má=má"]),
        ("ja", "新しいデータベースとPCを買う", ["データベース", "PC"], ["データベース=データベース", "PC=PC"]),
        ("zh", "新数据库系统", ["数据库", "数据"], ["数据库=数据库"]),
    ],
)
def test_terms_are_found_in_their_forms(code: str, text: str, terms: list[str], expected: list[str]) -> None:
    assert matched(code, text, *terms) == expected


@pytest.mark.parametrize(
    ("text", "terms", "expected"),
    [
        ("it is IT", ["IT"], ["IT=IT"]),
        ("us in the US, U.S.", ["US"], ["US=US"]),
        ("Two PCs, a PC's, pcs", ["PC"], ["PC=PCs", "PC=PC"]),
        ("IT is it", ["it"], ["it=IT", "it=it"]),
        ("us dollars, US dollars", ["US dollar"], ["US dollar=US dollars"]),
        ("polish the Polish", ["=Polish"], ["=Polish"]),
        ("an iphone and iPhones", ["=iPhone"], ["=iPhones"]),
        ("c or C", ["C"], ["C=C"]),
        ("an e-mail, E-Mails, E mail", ["E-Mail"], ["E-Mail=e-mail", "E-Mail=E-Mails", "E-Mail=E mail"]),
    ],
)
def test_letter_case(text: str, terms: list[str], expected: list[str]) -> None:
    assert [m.replace("Polish=", "=").replace("iPhone=", "=") for m in matched("en", text, *terms)] == expected


@pytest.mark.parametrize(
    ("text", "terms", "expected"),
    [
        ("rental agreements", ["agreement", "rental agreement", "rental"], ["rental agreement=rental agreements"]),
        ("rental\n agreement", ["rental agreement"], ["rental agreement=rental\n agreement"]),
        ("rental-agreement", ["rental agreement"], ["rental agreement=rental-agreement"]),
        ("a rental. Agreement", ["rental agreement"], []),
        ("a rental, agreement", ["rental agreement"], []),
        ("rental of agreement", ["rental agreement"], []),
        ("rental agreement law", ["rental agreement", "agreement law firm"], ["rental agreement=rental agreement"]),
        ("a b c", ["a b", "b c"], ["a b=a b"]),
        ("USB 3.0 and USB 3 0", ["USB 3.0"], ["USB 3.0=USB 3.0"]),
        ("C++, C# and C", ["C++", "C#"], ["C++=C++", "C#=C#"]),
        (".NET and NET", [".NET"], [".NET=.NET"]),
        ("and/or and or", ["and/or"], ["and/or=and/or"]),
        ("«assets»", ["“asset.”"], ["“asset.”=assets"]),
    ],
)
def test_terms_of_several_words_and_signs(text: str, terms: list[str], expected: list[str]) -> None:
    assert matched("en", text, *terms) == expected


@pytest.mark.parametrize(
    ("code", "text", "terms", "expected"),
    [
        ("de", "Grundstückskaufverträge", ["Vertrag"], ["Vertrag~verträge"]),
        ("de", "Vertragspartner", ["Vertrag"], ["Vertrag~Vertrag"]),
        ("de", "Datenbankenverwaltung", ["Datenbank"], ["Datenbank~Datenbank"]),
        (
            "de",
            "Datenbankverwaltungen",
            ["Datenbank", "Verwaltung"],
            ["Datenbank~Datenbank", "Verwaltung~verwaltungen"],
        ),
        ("de", "Mietverträge", ["Vertrag", "Mietvertrag"], ["Mietvertrag=Mietverträge"]),
        ("de", "RECHNERGEHÄUSE", ["Rechner"], ["Rechner~RECHNER"]),
        ("de", "Häuserkampf", ["Haus"], []),  # too short a term
        ("de", "Lehrerinnen", ["Lehrer"], []),
        ("de", "Rechnerei", ["Rechner"], []),
        ("de", "Vertragxyzt", ["Vertrag"], []),
        ("de", "Vertragspartner", ["=Vertrag"], ["=Vertrag~Vertrag"]),
        ("de", "LASERdrucker", ["LASER"], []),
        ("fi", "tietokoneohjelma", ["tietokone"], ["tietokone~tietokone"]),
        ("fi", "vuokrasopimuksen", ["sopimus"], ["sopimus~sopimuksen"]),
        ("en", "motherboards", ["board", "mother"], []),
    ],
)
def test_parts_of_compounds(code: str, text: str, terms: list[str], expected: list[str]) -> None:
    assert [m.removeprefix("=") for m in matched(code, text, *terms)] == [e.removeprefix("=") for e in expected]


def test_of_equal_places_the_more_alike_term_wins_then_the_case_sensitive_then_the_first() -> None:
    assert matched("de", "Häuser", "Haus", "Häuser") == ["Häuser=Häuser"]
    assert glossary("en", "polish", "=Polish").matches("Polish")[0].term.case_sensitive
    assert matched("de", "Hauses", "Häuser", "Haus") == ["Häuser=Hauses"]


def test_spans_are_those_of_the_untouched_text() -> None:
    text = unicodedata.normalize("NFD", "Für Verträge, „Häuser“")
    found = glossary("de", "Haus", unicodedata.normalize("NFD", "Verträge")).matches(text)
    assert [m.span.of(text) for m in found] == [unicodedata.normalize("NFD", w) for w in ("Verträge", "Häuser")]


def test_a_glossary_without_terms_matches_nothing() -> None:
    assert glossary("de").matches("Haus") == ()
    assert glossary("de", "Haus").matches("") == ()
