"""Inflected forms of translations that are found in outputs, and similar words that are not."""

from __future__ import annotations

import pytest

from rag_mt.base.terms import Term, TermMatch
from rag_mt.base.types import Span
from rag_mt.glossary.usage import usage_in

FORMS = {
    "de": {
        "Rechner": "Rechner Rechners Rechnern RECHNER rechner",
        "Haus": "Haus Hauses Häuser Häusern Hause",
        "Vertrag": "Vertrag Vertrags Vertrages Verträge Verträgen Vertrage VERTRÄGE",
        "schnelle Leitung": "schnelle+Leitung schnellen+Leitung schnellen+Leitungen schneller+Leitung",
        "Blockchain": "Blockchain Blockchains",
    },
    "cs": {
        "počítač": "počítač počítače počítači počítačem počítačů počítačům počítačích Počítač POČÍTAČE",
        "smlouva": "smlouva smlouvy smlouvě smlouvu smlouvou smluv smlouvám smlouvách smlouvami",
        "osobní údaj": "osobní+údaj osobního+údaje osobních+údajů osobními+údaji osobním+údajům",
    },
    "fi": {
        "tietokone": "tietokone tietokoneen tietokoneella tietokoneessa tietokoneet tietokoneita tietokoneiden "
        "tietokoneeseen tietokoneelta tietokoneellamme tietokoneissammekin",
        "sopimus": "sopimus sopimuksen sopimusta sopimuksessa sopimukset sopimuksia sopimuksista",
        "hinta": "hinta hinnan hintaa hinnat hintoja hinnasta",
        "sähköinen lasku": "sähköinen+lasku sähköisen+laskun sähköiset+laskut",
    },
    "ru": {
        "компьютер": "компьютер компьютера компьютеру компьютером компьютере компьютеры компьютеров компьютерам "
        "компьютерами компьютерах КОМПЬЮТЕР",
        "договор": "договор договора договоре договором договоры договоров договорами договорах",
        "счёт": "счёт счет счета счёта счетом",
        "персональные данные": "персональные+данные персональных+данных персональными+данными",
    },
    "ro": {
        "contract": "contract contractul contractului contracte contractele contractelor contractelor Contract",
        "calculator": "calculator calculatorul calculatorului calculatoare calculatoarele calculatoarelor",
        "bază de date": "bază+de+date baza+de+date baze+de+date bazele+de+date bazelor+de+date",
        "server": "server serverul serverului servere serverele serverelor",
    },
    "tr": {
        "bilgisayar": "bilgisayar bilgisayarı bilgisayara bilgisayarda bilgisayardan bilgisayarın bilgisayarlar "
        "bilgisayarlarda bilgisayarlarımızdan Bilgisayar",
        "sözleşme": "sözleşme sözleşmeyi sözleşmesi sözleşmenin sözleşmesinin sözleşmeler sözleşmelerin",
        "kitap": "kitap kitabı kitaba kitabın kitaplar kitapların",
        "veri tabanı": "veri+tabanı veri+tabanını veri+tabanında veri+tabanları",
        "İstanbul": "İstanbul İstanbul'da İSTANBUL",
    },
    "en": {
        "computer": "computer computers computer's Computers COMPUTER computers'",
        "mouse": "mouse mice Mice",
        "rental agreement": "rental+agreement rental+agreements Rental+Agreement rental-agreement",
        "analysis": "analysis analyses",
        "blockchain": "blockchain blockchains Blockchains",
    },
}
OTHERS = {
    "de": {
        "Rechner": "Rechnung rechnen Rechen",
        "Haus": "Hase Hausmeister hauen Laus",
        "Vertrag": "Vortrag Verdacht Antrag vertraglich",
        "Blockchain": "Block Blockade",
    },
    "cs": {
        "počítač": "počet počítat počasí",
        "smlouva": "smluvní sloupec smlouvat mluva",
        "údaj": "událost úděl",
    },
    "fi": {
        "tietokone": "tietokanta tieto kone tietokilpailu",
        "sopimus": "sopimaton sopiva sopia",
        "hinta": "hitain hintti himo",
        "kone": "koneisto koneiston konna kona",
    },
    "ru": {
        "компьютер": "компания компьютеризация компот",
        "договор": "договориться говор договорённость уговор",
        "счёт": "счастье счётчик",
    },
    "ro": {
        "contract": "contact contrast contractor",
        "calculator": "calcul calcula calculație",
        "bază": "bazin bazar bazalt",
        "server": "serviciu servi",
    },
    "tr": {
        "bilgisayar": "bilgi bilgin sayar",
        "sözleşme": "sözlük söz sözcü",
        "kitap": "kitle kitabe kibar",
        "sınır": "sinir",
    },
    "en": {
        "computer": "computation compute computing commuter",
        "mouse": "moose mousse house",
        "contract": "contractor contact contraction contrast",
        "blockchain": "block",
        "IT": "it It",
    },
}

MISSED = [("fi", "sähköinen lasku", "sähköistä laskua")]  # the dictionary has `sähköistä` as a form of a verb only
WRONG = [("tr", "kitap", "kitapçı")]  # a word that no dictionary has may be derived as well as inflected


def found(term: str, text: str, code: str) -> list[Span]:
    source = Term("x", "de" if code != "de" else "en", code, (term,))
    return [use.span for use in usage_in(TermMatch(source, Span(0, 1)), text, code).allowed]


@pytest.mark.parametrize("code", FORMS)
def test_inflected_forms_are_found_where_they_stand(code: str) -> None:
    forms = [(term, form.replace("+", " ")) for term, forms in FORMS[code].items() for form in forms.split()]
    assert len(forms) >= 12
    missed = []
    for term, form in forms:
        spans = found(term, f"1: „{form}“, ({term[:1]})", code)
        bare = form.removesuffix("'").removesuffix("'s").removesuffix("'da")
        if spans != [Span(4, 4 + len(bare))]:
            missed.append((term, form))
    assert missed == []


@pytest.mark.parametrize("code", OTHERS)
def test_similar_words_are_not_found(code: str) -> None:
    words = [(term, word) for term, words in OTHERS[code].items() for word in words.split()]
    assert len(words) >= 6
    assert [(term, word) for term, word in words if found(term, f"1: {word}.", code)] == []


def test_the_limits_of_dictionaries_are_known() -> None:
    assert [found(term, text, code) for code, term, text in MISSED] == [[]]
    assert [len(found(term, text, code)) for code, term, text in WRONG] == [1]
