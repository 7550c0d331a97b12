import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.types import ELLIPSIS, Hint, Hit, Sentence, Span

ALPHABET = "abä .,([\n\t\u00a0\u0301日本"


@st.composite
def hints(draw: st.DrawFn) -> Hint:
    text = draw(st.text(ALPHABET, max_size=160))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + draw(st.integers(0, 120)))))
    return hint(text, Span(start, end))


def hint(text: str, span: Span) -> Hint:
    return Hint(Span(0, 1), Hit(Sentence(text, "en"), span, 0.5))


@given(hints(), st.integers(0, 140))
def test_the_phrase_is_in_its_context_and_the_context_in_its_limit(found: Hint, limit: int) -> None:
    context = found.context(limit)
    assert context.phrase.of(context.text) == found.phrase
    assert len(context.text) <= limit or context.text == found.phrase
    assert context.marked("<<", ">>").replace("<<", "", 1).replace(">>", "", 1) == context.text


@given(hints(), st.integers(0, 140))
def test_the_context_is_a_cut_of_the_sentence_at_word_boundaries(found: Hint, limit: int) -> None:
    sentence, span = found.hit.sentence.text, found.hit.span
    context = found.context(limit)
    before, after = context.text[: context.phrase.start], context.text[context.phrase.end :]
    if context.text == found.phrase:
        return
    if sentence[: span.start] != before:
        assert before.startswith(ELLIPSIS)
        before = before.removeprefix(ELLIPSIS)
        assert sentence[: span.start].endswith(before)
        cut = span.start - len(before)
        assert sentence[cut - 1].isspace() or not any(map(str.isspace, before))
    if sentence[span.end :] != after:
        assert after.endswith(ELLIPSIS)
        after = after.removesuffix(ELLIPSIS)
        assert sentence[span.end :].startswith(after)
        assert sentence[span.end + len(after)].isspace() or not any(map(str.isspace, after))


TEXT = "the quick brown fox jumps over the lazy dog"


@pytest.mark.parametrize(
    ("phrase", "limit", "expected"),
    [
        ("fox", 100, "the quick brown {fox} jumps over the lazy dog"),
        ("fox", 43, "the quick brown {fox} jumps over the lazy dog"),
        ("fox", 42, "the quick brown {fox} jumps over the..."),
        ("the quick", 30, "{the quick} brown fox..."),
        ("lazy dog", 30, "...jumps over the {lazy dog}"),
        ("fox", 9, "...{fox}..."),
        ("fox", 8, "{fox}"),
        ("brown fox jumps", 10, "{brown fox jumps}"),
        (TEXT, 10, "{" + TEXT + "}"),
    ],
)
def test_known_contexts(phrase: str, limit: int, expected: str) -> None:
    start = TEXT.index(phrase)
    assert hint(TEXT, Span(start, start + len(phrase))).context(limit).marked("{", "}") == expected


def test_a_script_without_spaces_keeps_its_context() -> None:
    text = "首相はきのう東京で新しい経済政策について記者団に説明した"
    start = text.index("経済政策")
    assert hint(text, Span(start, start + 4)).context(18).marked("[[", "]]") == "...で新しい[[経済政策]]について..."


def test_a_span_must_be_in_order() -> None:
    with pytest.raises(ValueError, match="3:2"):
        Span(3, 2)


@pytest.mark.parametrize(
    ("a", "b", "shared"), [((0, 2), (2, 4), False), ((0, 3), (2, 4), True), ((1, 1), (1, 2), False)]
)
def test_overlap(a: tuple[int, int], b: tuple[int, int], shared: bool) -> None:
    assert Span(*a).overlaps(Span(*b)) is shared
