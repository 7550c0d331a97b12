"""Texts of growing answers: stop strings, unfinished characters, and what may be given out early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.llm.generation import AnswerText, first_stop, safe_length


def lossy(ids: list[int]) -> str:
    """Bytes as tokens, read as byte-level decoders read them."""
    return bytes(ids).decode("utf-8", errors="replace")


def all_or_nothing(ids: list[int]) -> str:
    """Bytes as tokens, read as SentencePiece byte fallback reads them: one bad byte spoils the whole run."""
    try:
        return bytes(ids).decode("utf-8")
    except UnicodeDecodeError:
        return "\ufffd" * len(ids)


@pytest.mark.parametrize(
    ("text", "stop", "at"),
    [
        ("abc\n\ndef", ("\n\n",), 3),
        ("abc", ("x",), -1),
        ("a#b\n", ("\n", "#"), 1),
        ("abc", ("",), -1),
        ("", ("a",), -1),
    ],
)
def test_first_stop(text: str, stop: tuple[str, ...], at: int) -> None:
    assert first_stop(text, stop) == at


@pytest.mark.parametrize(
    ("text", "stop", "safe"),
    [
        ("Haus\n", ("\n\n",), 4),
        ("Haus##", ("###", "\n"), 4),
        ("Haus", ("###",), 4),
        ("a", (), 1),
        ("aab", ("aabaac",), 0),
    ],
)
def test_safe_length(text: str, stop: tuple[str, ...], safe: int) -> None:
    assert safe_length(text, stop) == safe


@pytest.mark.parametrize("decode", [lossy, all_or_nothing])
@given(
    text=st.text(st.sampled_from("ab\n#€ü😀x "), max_size=30),
    stop=st.lists(st.text("ab\n#€", min_size=1, max_size=3), max_size=3),
)
def test_pieces_join_to_the_text_before_the_first_stop(decode, text: str, stop: list[str]) -> None:  # type: ignore[no-untyped-def]
    answer = AnswerText(decode, stop)
    given = ""
    for byte in text.encode():
        answer.push(byte)
        if answer.stopped:
            break
        safe = answer.text[: answer.safe]
        assert safe.startswith(given)
        given = safe
    answer.close()
    # Tokens come one by one, so the stop string that is complete first wins; it may begin after a longer one.
    ends = [(text.find(s) + len(s), s) for s in stop if s in text]
    end = min(ends)[0] if ends else len(text)
    at = first_stop(text[:end], stop)
    assert answer.text == (text[:at] if at >= 0 else text)
    assert answer.stopped == (at >= 0)
    assert answer.text.startswith(given)


@given(st.binary(max_size=40))
def test_any_bytes_are_read(data: bytes) -> None:
    answer = AnswerText(lossy)
    for byte in data:
        answer.push(byte)
    answer.close()
    assert answer.text == lossy(list(data)).rstrip("\ufffd")


def test_an_unfinished_character_is_left_out() -> None:
    answer = AnswerText(lossy)
    for byte in "Preis: 5 €".encode()[:-1]:
        answer.push(byte)
    answer.close()
    assert answer.text == "Preis: 5 "


def test_a_decoder_that_strips_the_first_blank() -> None:
    words = ["▁Das", "▁ist", "▁gut"]
    answer = AnswerText(lambda ids: "".join(words[i] for i in ids).replace("▁", " ").removeprefix(" "))
    for i in range(3):
        answer.push(i)
    answer.close()
    assert answer.text == "Das ist gut"
