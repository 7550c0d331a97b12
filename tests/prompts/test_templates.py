import re
from itertools import permutations

import pytest

from prompts.builder import PromptBuilder
from prompts.safety import Guard
from prompts.wording import has_shots, shot_languages, shots
from rag_mt.base.languages import WMT16, language
from rag_mt.base.types import Hint, Hit, Sentence, Span

LANGUAGES = ("en", *WMT16)


@pytest.mark.parametrize("code", LANGUAGES)
@pytest.mark.parametrize("number", range(4))
def test_each_shot_is_usable(number: int, code: str) -> None:
    shot = shots()[number][code]
    for text in (shot["text"], shot["context"]):
        assert re.search(rf"(?<!\w){re.escape(shot['phrase'])}(?!\w)", text)
        assert Guard().neutral(text, brackets=True) == text and text == text.strip()
    assert shot["text"] != shot["context"] and shot["context"] != shot["phrase"]
    assert 6 <= len(shot["text"].split()) <= 20 and len(shot["context"]) <= 100


def test_shots_exist_for_all_directions() -> None:
    assert len(shots()) == 4 and set(shot_languages()) == set(LANGUAGES)
    assert all(has_shots(*pair) for pair in permutations(LANGUAGES, 2))
    assert not has_shots("en", "is") and not has_shots("en", "en") and not has_shots("en-GB", "en")


def test_a_regional_variant_uses_the_shots_of_its_language() -> None:
    prompt = PromptBuilder("de-AT", "en", "auto").build(Sentence("Servus", "de-AT"), ())
    assert prompt.text.endswith(f"\n{language('de-AT').name}: Servus\nEnglish:")
    assert shots()[0]["de"]["text"] in prompt.text


@pytest.mark.parametrize(("source", "target"), list(permutations(LANGUAGES, 2)))
def test_shots_have_the_shape_of_the_question(source: str, target: str) -> None:
    hint = Hint(Span(0, 4), Hit(Sentence("A word.", target), Span(2, 6), 0.5))
    for unit in ("phrase", "sentence", "passage"):
        builder = PromptBuilder(source, target, "few-shot", unit)  # type: ignore[arg-type]
        for hints in ((), (hint,)):
            head, *examples, question = builder.build(Sentence("Text", source), hints).text.split("\n\n")
            shapes = {tuple(line.split(":")[0] for line in block.split("\n")) for block in (*examples, question)}
            assert len(examples) == 4 and len(shapes) == 1
            assert language(target).name in head
