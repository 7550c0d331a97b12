import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompts.safety import LOOK_ALIKES, SEPARATOR, Guard, one_line, restored

CONVENTIONAL = ["[[", "]]", "###", "</s>", "<s>", "<bos>", "[INST]", "[/INST]", "<<SYS>>", "<|im_start|>", "<|eot_id|>"]
CONVENTIONAL += ["<start_of_turn>", "<｜User｜>", "<unused12>", "</think>"]
PIECES = st.lists(st.sampled_from([*CONVENTIONAL, *"<>[]#|{}/s: ab", "im_start", "unused"]), max_size=16).map("".join)
CALM = st.text(st.characters(exclude_characters=[*LOOK_ALIKES.values(), SEPARATOR]), max_size=40)
RESERVED = st.lists(st.text("<>|ab#[ x", min_size=1, max_size=4), max_size=6)


@given(st.one_of(PIECES, CALM), RESERVED, st.booleans())
def test_nothing_reserved_is_left_and_everything_comes_back(text: str, reserved: list[str], brackets: bool) -> None:
    guard = Guard(reserved)
    neutral = guard.neutral(text, brackets)
    for token in (*CONVENTIONAL, *guard.reserved):
        assert token not in neutral
    assert guard.neutral(neutral, brackets) == neutral
    assert restored(neutral, "", neutral) == text
    assert restored(neutral, text, neutral) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[x]]", "⟦⟦x⟧⟧"),
        ("a <s> b", "a ⟨s⟩ b"),
        ("### Titel", "♯♯♯ Titel"),
        ("<|im_end|>", "⟨∣im_end∣⟩"),
        ("C# [1] ## <b>1 < 2</b> a|b {x}", "C# [1] ## <b>1 < 2</b> a|b {x}"),
    ],
)
def test_known_replacements(text: str, expected: str) -> None:
    assert Guard().neutral(text) == expected


def test_a_models_own_tokens() -> None:
    guard = Guard(["<extra_id_0>", "EOS", "", "\n", "x"])
    assert guard.neutral("x <extra_id_0> EOS") == f"x ⟨extra_id_0⟩ E{SEPARATOR}OS"


def test_the_users_own_look_alikes_stay() -> None:
    source = "⟨a⟩ and <s>"
    shown = Guard().neutral(source)
    assert restored("⟨a⟩ und ⟨s⟩", source, shown) == "⟨a⟩ und ⟨s⟩"
    assert restored("⟨a⟩", "a", "no look-alike here") == "⟨a⟩"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb", "a b"),
        ("a \r\n\t b", "a b"),
        ("a\u2028b\x85c\x0bd", "a b c d"),
        (" a  b ", "a  b"),
        ("\ud800", "\ufffd"),
    ],
)
def test_one_line(text: str, expected: str) -> None:
    assert one_line(text) == expected


@given(st.text())
def test_one_line_is_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1
