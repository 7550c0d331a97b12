from hypothesis import given
from hypothesis import strategies as st

from prompts.builder import chosen_hints
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
    kept, left_out = chosen_hints(TEXT, found, "phrase", limit)
    assert len(kept) + left_out.total() == len(found) and len(kept) <= limit
    assert not any(a.source_span.overlaps(b.source_span) for a in kept for b in kept if a is not b)
    assert len({(h.source_span.of(TEXT), h.phrase) for h in kept}) == len(kept)
    assert [h.hit.score for h in kept] == sorted((h.hit.score for h in kept), reverse=True)
    random.shuffle(found)  # type: ignore[attr-defined]
    assert chosen_hints(TEXT, found, "phrase", limit) == (kept, left_out)


@given(st.lists(hints(), max_size=12))
def test_what_is_left_out_lost_to_something_stronger(found: list[Hint]) -> None:
    kept, _ = chosen_hints(TEXT, found, "phrase", 99)
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
