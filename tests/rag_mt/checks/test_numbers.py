"""Numbers are the same number however a language writes them, and other ones are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.checks.number_sides import numbers
from rag_mt.checks.numbers import differing_numbers


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
        ("%1$s of %2$s and z&#160;%d, 5%", ["5"]),
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
    ("en", "cs", "It begins at 11:30.", "Začíná v půl dvanácté."),
    ("en", "fi", "It begins at 2.30.", "Se alkaa puoli kolmelta."),
    ("en", "de", "It begins at 8:40.", "Es beginnt um zwanzig vor neun."),
    ("en", "de", "It begins at 7:30 pm.", "Es beginnt um halb 8."),
    ("en", "ru", "It begins at 6:15.", "Начало в четверть седьмого."),
    ("en", "tr", "It begins at 5:00.", "Saat beşte başlıyor."),
    ("en", "fi", "a town of 500,000", "puolen miljoonan asukkaan kaupunki"),
    ("en", "cs", "1,400 seats", "čtrnáct set míst"),
    ("en", "fi", "twenty-five hundred coins", "2500 kolikkoa"),
    ("en", "de", "800 thousand people", "800 000 Menschen"),
    ("en", "de", "5000 million dollars", "5 Milliarden Dollar"),
    ("en", "ru", "4000 members came", "Пришли 4 тыс. членов"),
    ("en", "ro", "5000 people met them", "5 mii de oameni i-au întâlnit"),
    ("en", "tr", "2,500 people", "2 bin 500 kişi"),
    ("en", "tr", "1,099 officers", "bin 99 subay"),
    ("en", "ru", "2.75 million dollars", "2 миллиона 750 тысяч долларов"),
    ("en", "de", "2.5 hours", "zweieinhalb Stunden"),
    ("en", "cs", "1.5 hours", "půldruhé hodiny"),
    ("en", "tr", "0.9 per cent", "yüzde sıfır nokta dokuz"),
    ("en", "de", "5.5 metres", "5,50 Meter"),
    ("en", "de", "Version 3.0", "Version 3"),
    ("en", "ru", "in the 2000s", "в нулевые"),
    ("en", "ru", "in the last 24 hours", "за последние сутки"),
    ("en", "fi", "in the last 24 hours", "kuluneen vuorokauden aikana"),
    ("en", "tr", "a 2D object", "İki boyutlu nesne"),
    ("en", "de", "in the 1880s", "in den 80er Jahren des 19. Jahrhunderts"),
    ("en", "cs", "in the 1760s", "v 60. letech 18. století"),
    ("en", "de", "by 27 October 1982", "bis 27.10.82"),
    ("en", "cs", "in 2020/2021", "v letech 2020/21"),
    ("en", "tr", "in 2017", "FY17"),
    ("en", "cs", "carbon dioxide", "emise CO2"),
    ("en", "ro", "170 sq. metres", "170 m2"),
    ("en", "ro", "below 500 feet", "sub 150 de metri"),
    ("en", "de", "the 29,028 feet high mountain", "der 8848 Meter hohe Berg"),
    ("en", "cs", "a span of 449ft (137m)", "měřil 137 m"),
    ("en", "de", "35 million pounds of it", "davon 16 Millionen Kilogramm"),
    ("en", "cs", "at 130mph", "přes 200 km/h"),
    ("en", "fi", "five miles from here", "8 km:n päässä"),
    ("en", "de", "at a depth of 4.3 miles", "in sieben Kilometern Tiefe"),
    ("en", "tr", "two ounces", "60 gram"),
    ("en", "tr", "a 3,000 square-foot gallery", "280 metrekarelik galeri"),
    ("en", "cs", "21,000 acres", "21 000 akrů (8 400 ha)"),
    ("en", "ru", "600,000 to 700,000 years", "600–700 тысяч лет"),
    ("en", "ro", "70,000 acres", "70 de mii de acri"),
    ("en", "ru", "the number 1 marketing firm", "маркетинговая фирма номер один"),
    ("en", "cs", "since the 70s", "od 70. let 20. století"),
    ("en", "cs", "in 3D format", "v trojrozměrném formátu"),
    ("en", "cs", "50% of it", "poloviční podíl"),
    ("en", "cs", "on the first of September", "1. září"),
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
        ("de", "36 million people", "36.000 Menschen", ["36"], ["36.000"]),
        ("de", "4.3 percent, three towns, 4.9 percent", "Prozent, drei Orte, 4,9 Prozent", ["4.3"], []),
        ("de", "up 13 percent from 2013", "ein Prozent mehr als 2013", ["13"], []),
        ("ru", "on September 1 or on 2 May", "один из них, 2 мая, сентября", ["1"], []),
        ("cs", "Tuesday, September 9", "Úterý, září", ["9"], []),
        ("de", "the port COM1", "ein Anschluss COM", ["1"], []),
        ("cs", "the 58-foot arm", "třicetimetrová paže", ["58"], []),
        ("de", "10 feet", "30 Meter", ["10"], ["30"]),
        ("fi", "It begins at 2.30.", "Se alkaa kello neljä.", ["2.30"], []),
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
