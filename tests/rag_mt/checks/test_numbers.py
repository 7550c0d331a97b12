"""Numbers are the same number however a language writes them, and other ones are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.checks.numbers import differing_numbers, numbers


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("1,234.5 and 1.234,5", ["12345", "12345"]),
        ("at 18:00 or 7.30", ["1800", "730"]),
        ("B2B, MP3, 3D", ["2", "3", "3"]),
        ("007 and 0", ["7", "0"]),
        ("٣٥ apples", ["35"]),
        ("1.2.3-rc4", ["123", "4"]),
        ("no digits, ² and ½ aside", []),
        ("", []),
    ],
)
def test_numbers_of_a_text(text: str, digits: list[str]) -> None:
    found = numbers(text)
    assert [number.digits for number in found] == digits
    assert all(len(number.text) == number.end - number.start for number in found)


SAME = [
    ("en", "de", "It costs 1,234.50 euros.", "Es kostet 1.234,50 Euro."),
    ("en", "cs", "36,000 people came.", "Přišlo 36 tisíc lidí."),
    ("en", "fi", "About 1,200 dollars", "Noin 1 200 dollaria"),
    ("en", "ru", "1 million roubles", "Миллион рублей"),
    ("en", "ro", "17,000 kilometres", "17 000 de kilometri"),
    ("en", "de", "At 7.30pm", "Um 19.30 Uhr"),
    ("en", "tr", "It begins at 2 p.m.", "Saat 14.00'te başlıyor."),
    ("de", "en", "Um 18:00 Uhr", "At 18"),
    ("en", "de", "He is 25 years old.", "Er ist fünfundzwanzig."),
    ("en", "cs", "A 37-year-old man", "Sedmatřicetiletý muž"),
    ("en", "fi", "25 people", "Kaksikymmentäviisi ihmistä"),
    ("en", "ru", "300,000 people", "Триста тысяч человек"),
    ("en", "cs", "200 or 300 metres", "Dvě stě či tři sta metrů"),
    ("en", "ro", "3 children", "Trei copii"),
    ("en", "tr", "5 brothers", "Beş kardeş"),
    ("fi", "en", "Yli 65-vuotiaita on 11.", "Eleven persons are over 65."),
    ("en", "fi", "the 1980s", "80-luku"),
    ("en", "cs", "in the 1930s", "v třicátých letech"),
    ("en", "de", "the late 1800s", "Ende des 19. Jahrhunderts"),
    ("en", "ru", "the 19th century", "XIX век"),
    ("en", "cs", "August 31", "31.8."),
    ("de", "en", "am 31.8.2014", "on August 31, 2014"),
    ("en", "fi", "2006-2012", "2006–12"),
    ("en", "de", "Version 2 of 2", "Version 2"),
]


@pytest.mark.parametrize(("source_language", "target_language", "source", "target"), SAME)
def test_a_number_said_in_another_way_is_no_finding(
    source_language: str, target_language: str, source: str, target: str
) -> None:
    assert differing_numbers(source, target, source_language, target_language) == ([], [])
    assert differing_numbers(target, source, target_language, source_language) == ([], [])


@pytest.mark.parametrize(
    ("target_language", "source", "target", "lost", "added"),
    [
        ("de", "It costs 42 euros.", "Es kostet 24 Euro.", ["42"], ["24"]),
        ("cs", "In 2014 and 2015", "V roce 2014", ["2015"], []),
        ("fi", "Nobody came.", "12345 ihmistä tuli.", [], ["12345"]),
        ("ru", "35 per cent", "25 процентов", ["35"], ["25"]),
        ("ro", "1,500 lei", "1.600 de lei", ["1,500"], ["1.600"]),
        ("tr", "At 7.30 pm", "Saat 18.30'da", ["7.30"], ["18.30"]),
        ("de", "36,000 people", "63 Tausend Menschen", ["36,000"], ["63"]),
        ("de", "Version 1.2.3", "Version 1.2.4", ["1.2.3"], ["1.2.4"]),
    ],
)
def test_other_numbers_are_found(
    target_language: str, source: str, target: str, lost: list[str], added: list[str]
) -> None:
    found = differing_numbers(source, target, "en", target_language)
    assert tuple([number.text for number in side] for side in found) == (lost, added)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_can_be_compared(source: str, target: str) -> None:
    assert differing_numbers(source, source, "de", "en") == ([], [])
    lost, added = differing_numbers(source, target, "xx", "en")
    assert set(lost) <= set(numbers(source)) and set(added) <= set(numbers(target))
