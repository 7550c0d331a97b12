from hypothesis import given
from hypothesis import strategies as st

from prompts.hints import chosen_hints, in_source_order, passage_window
from rag_mt.base.types import Hint, Hit, Sentence, Span

TEXT = "one two three four five six seven eight nine ten"


@st.composite
def hints(draw: st.DrawFn) -> Hint:
    start = draw(st.integers(0, len(TEXT) - 1))
    span = Span(start, draw(st.integers(start, len(TEXT) + 2)))
    phrase = draw(st.sampled_from(["x", "y", "x y", " "]))
    return Hint(span, Hit(Sentence(phrase, "en"), Span(0, len(phrase)), draw(st.sampled_from([0.1, 0.5, 0.5, 0.9]))))


@given(st.lists(hints(), max_size=12), st.integers(0, 6), st.randoms(use_true_random=False))
def test_choice(found: list[Hint], limit: int, random: object) -> None:
    kept, left_out = chosen_hints(TEXT, found, "phrase", limit, 100)
    assert len(kept) + left_out.total() == len(found) and len(kept) <= limit
    assert not any(a.source_span.overlaps(b.source_span) for a in kept for b in kept if a is not b)
    assert len({(h.source_span.of(TEXT), h.phrase) for h in kept}) == len(kept)
    assert [h.hit.score for h in kept] == sorted((h.hit.score for h in kept), reverse=True)
    spans = [h.source_span for h in in_source_order(kept)]
    assert spans == sorted(spans)
    random.shuffle(found)  # type: ignore[attr-defined]
    assert chosen_hints(TEXT, found, "phrase", limit, 100) == (kept, left_out)


@given(st.lists(hints(), max_size=12))
def test_what_is_left_out_lost_to_something_stronger(found: list[Hint]) -> None:
    kept, _ = chosen_hints(TEXT, found, "phrase", 99, 100)
    for hint in found:
        usable = hint.source_span.of(TEXT).strip() and hint.phrase.strip() and hint.source_span.end <= len(TEXT)
        rivals = [
            k
            for k in kept
            if k.hit.score >= hint.hit.score
            and (
                k.source_span.overlaps(hint.source_span)
                or (k.source_span.of(TEXT).split(), k.phrase) == (hint.source_span.of(TEXT).split(), hint.phrase)
            )
        ]
        assert not usable or hint in kept or rivals


@given(st.text("ab1 .\n日", min_size=1, max_size=200), st.data())
def test_a_window_is_within_its_limit(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    span = Span(start, data.draw(st.integers(start + 1, len(text))))
    limit = data.draw(st.integers(1, 80))
    window = passage_window(Hint(Span(0, 1), Hit(Sentence(text, "en"), span, 1.0)), "ab 1", limit)
    assert 0 < len(window) <= limit
    assert window.removeprefix("...").removesuffix("...") in text
