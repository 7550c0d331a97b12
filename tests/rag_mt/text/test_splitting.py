"""Sentence spans: known sentences, known failures, and that nothing of a text is ever lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rag_mt.base.types import Span
from rag_mt.text.splitting import MAX_CHARS, rejoin, split

LANGUAGES = ("en", "de", "cs", "fi", "ro", "ru", "tr", "zh", "ja", "th", "ar", "pt-BR", "zz")
SPACES = "".join(c for c in map(chr, range(0x110000)) if c.isspace())
PIECES = st.sampled_from(
    [
        "Dr.",
        "z. B.",
        "5.",
        "A.",
        "\r\n",
        "\n\n",
        "😀",
        "👩‍👩‍👧",
        "e\u0301",
        "你好。",
        "「はい」",
        "مرحبا؟",
        "สวัสดี",
        "http://a.b/c?d.",
    ]
)
TEXTS = st.one_of(
    st.text(),
    st.lists(st.one_of(PIECES, st.sampled_from("abcABC .!?,\"'()[]-…“”" + SPACES), st.characters())).map("".join),
)


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Mr. J. Smith left in Jan. 2020.", 'He said: "Hi. Bye."', "See No. 5, Fig. 3.", "He said no.", "Yes!"]),
        ("en", ["Visit www.example.com, e.g. today.", '"Why?" he asked.', "Gen. Lee came at 5 p.m.", "He left."]),
        ("en", ["1. Introduction.", "2. Methods.", "Great! 😀 ***"]),
        ("de", ["Am 3. Oktober kam Dr. Müller z. B. nach Berlin.", "Er blieb.", "Vgl. Abb. 3 und Art. 5 des GG."]),
        ("de", ["J.-P. Sartre kam.", "Es stand 5:0.", "Relativ viel!"]),
        ("ru", ["«Почему?» — спросил он.", "Все ушли."]),
        ("tr", ["Sağlık Bakanlığı 5. kez toplandı.", "Av. Yılmaz II. Murad'ı anlattı.", "Sonra dağıldı."]),
        ("cs", ["Mluvil s J. Novákem.", "Bydlí na ul. Husova č. 5 v Praze.", "Pak odešel."]),
        ("fi", ["Hän syntyi 3. toukokuuta 1990.", "Ks. esim. prof. Virtanen.", "Se oli siinä."]),
        ("ru", ["Т. е. никто не пришёл.", "Кто?", "Он из г. Москвы, см. рис. 3.", "А. С. Пушкин жил на ул. Мира."]),
        ("ro", ["Dl. Popescu a venit.", "Pe str. Mihai Viteazu nr. 5 e bine.", "Am plecat."]),
    ],
)  # fmt: skip
def test_sentences(language: str, sentences: list[str]) -> None:
    text = " ".join(sentences)
    assert [span.of(text) for span in split(text, language)] == sentences


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("zh", "你好。我是学生！你呢？", ["你好。", "我是学生！", "你呢？"]),
        ("ja", "こんにちは。元気ですか?はい。", ["こんにちは。", "元気ですか?", "はい。"]),
        ("th", "สวัสดีครับ ผมชื่อจอห์น", ["สวัสดีครับ ผมชื่อจอห์น"]),
        ("ar", "مرحبا بك. كيف حالك؟ أنا بخير.", ["مرحبا بك.", "كيف حالك؟", "أنا بخير."]),
        ("en", "  A title\n\tSome text. More.\r\n", ["A title", "Some text.", "More."]),
        ("en", "Page\u00a0. Next", ["Page\u00a0.", "Next"]),
        ("de", "Am 3.\u00a0Oktober.", ["Am 3.\u00a0Oktober."]),
        ("en", "----\n* * *\n", []),
        ("en", "", []),
        ("en", "𝒜bc 😀👩‍👩‍👧. Next e\u0301.", ["𝒜bc 😀👩‍👩‍👧.", "Next e\u0301."]),
        ("en", "\u2028One.\u2029Two\x85Three", ["One.", "Two", "Three"]),
    ],
)
def test_spans_in_other_scripts_and_spacing(language: str, text: str, sentences: list[str]) -> None:
    assert [span.of(text) for span in split(text, language)] == sentences


@given(text=TEXTS, language=st.sampled_from(LANGUAGES), limit=st.sampled_from([1, 7, 50, MAX_CHARS]))
@example(text="B\u00a0. C\u2028. D\ud800. E", language="en", limit=MAX_CHARS)  # bare sentencex panics here
def test_spans_are_sound_and_rejoin_to_the_text(text: str, language: str, limit: int) -> None:
    assume(not any(sign in text for sign in ("@", "://", "www.")))  # an address is no sentence
    spans = split(text, language, limit)
    assert rejoin(text, spans, [span.of(text) for span in spans]) == text
    assert all(0 < len(span) <= limit for span in spans)
    assert all(span.of(text) == span.of(text).strip() for span in spans)
    assert all(left.end <= right.start for left, right in pairwise(spans))
    covered = {i for span in spans for i in range(span.start, span.end)}
    lines_with_words = [line for line in text.splitlines() if any(c.isalnum() for c in line)]
    assert sum(c.isalnum() for line in lines_with_words for c in line) == sum(text[i].isalnum() for i in covered)


def test_long_sentences_are_cut_at_clause_ends_and_spaces() -> None:
    text = "word " * 150 + "end, " + "next " * 100
    first, second = (span.of(text.strip()) for span in split(text.strip(), "en"))
    assert first.endswith("end,") and second.startswith("next") and len(first) <= MAX_CHARS
    assert [len(span) for span in split("好" * 2500, "zh")] == [1000, 1000, 500]
    accents = "e\u0301" * 10
    assert all(accents[span.start] != "\u0301" for span in split(accents, "en", 5))


def test_translations_take_the_place_of_their_sentences() -> None:
    text = "  Eins.\tZwei.\n\n---\nDrei.  "
    assert rejoin(text, split(text, "de"), ["One.", "Two.", "Three."]) == "  One.\tTwo.\n\n---\nThree.  "


def test_sentences_that_touch_get_a_space_unless_their_script_has_none() -> None:
    text = "你好。我是学生！"
    spans = split(text, "zh")
    assert rejoin(text, spans, ["Hello.", "I am a student!"]) == "Hello. I am a student!"
    assert rejoin(text, spans, ["今日は。", "学生です！"]) == "今日は。学生です！"


def test_rejoin_wants_one_translation_per_span() -> None:
    with pytest.raises(ValueError):
        rejoin("A. B.", [Span(0, 2), Span(3, 5)], ["C."])


@pytest.mark.parametrize("mark", ["- ", "* ", "+ ", "> ", "> > ", "- [ ] ", "[ ] ", "  - ", "• "])
@pytest.mark.parametrize("language", ["de", "en"])
def test_marks_of_lists_belong_to_no_sentence(mark: str, language: str) -> None:
    text = f"{mark}Erst dies. Dann das."
    spans = split(text, language)
    assert [s.of(text) for s in spans] == ["Erst dies.", "Dann das."]
    assert rejoin(text, spans, ["A.", "B."]) == f"{mark}A. B."


def test_what_may_be_a_number_stays_in_its_sentence() -> None:
    assert [s.start for s in split("1. Mai ist ein Feiertag.", "de")] == [0]
    assert [s.start for s in split("-5 Grad", "de")] == [0]


@pytest.mark.parametrize("text", ["anna@example.org", " https://example.org/Pfad?a=1 ", "www.example.org"])
def test_addresses_are_no_sentences(text: str) -> None:
    assert split(text, "de") == []
    assert split(f"Schreib an {text}", "de")
