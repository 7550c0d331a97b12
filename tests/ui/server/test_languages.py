"""Offered directions and the detection of a text's language."""

from __future__ import annotations

import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.files import EXAMPLES
from ui.server.languages import Detector, offer_of

CODES = ("cs", "de", "en", "fi", "ro", "ru", "tr")


def test_the_default_offer_is_what_the_adapters_were_tuned_on() -> None:
    offer = offer_of()
    assert [own.code for own in offer.languages] == ["cs", "en", "fi", "de", "ro", "ru", "tr"]
    assert offer.targets_of("de") == ("en",)
    assert offer.sources_of("de") == ("en",)
    assert len(offer.targets_of("en")) == 6
    assert (offer.known("German"), offer.known("DE")) == ("de", "de")
    offer.check("en", "tr")
    with pytest.raises(UserError, match="German is not translated into Turkish: targets from de are en"):
        offer.check("de", "tr")
    with pytest.raises(UserError, match="'fr' is not offered: choose one of cs, en"):
        offer.known("fr")


def test_named_languages_are_translated_into_each_other() -> None:
    offer = offer_of(["ar", "German", "fa"])
    assert len(offer.directions) == 6
    assert {own.code: own.right_to_left for own in offer.languages} == {"ar": True, "de": False, "fa": True}
    assert len(offer_of(llm="some/model").directions) == 42
    with pytest.raises(UserError, match="expected at least two"):
        offer_of(["de"])
    with pytest.raises(UserError, match="unknown language 'qq'"):
        offer_of(["de", "qq"])


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector(CODES)


@pytest.mark.parametrize("code", CODES)
def test_the_examples_are_in_their_language(detector: Detector, code: str) -> None:
    lines = [line for path in sorted(EXAMPLES.glob(f"*.{code}.txt")) for line in path.read_text("utf-8").splitlines()]
    lines = [line for line in lines if len(line) > 40]
    detected = [detector.best(line) for line in lines]
    assert sum(best is not None and best.code == code for best in detected) >= 0.95 * len(lines)


@pytest.mark.parametrize("text", ["", "  ", "123", "?!", "你好", "\x00", "\U0001f600"])
def test_what_says_nothing(detector: Detector, text: str) -> None:
    assert detector.best(text) is None


def test_confidences_are_ordered(detector: Detector) -> None:
    detected = detector.detect("Hyvää huomenta")
    assert detected[0].code == "fi"
    assert [d.confidence for d in detected] == sorted((d.confidence for d in detected), reverse=True)
    assert all(0 < d.confidence <= 1 for d in detected)


def test_languages_that_are_not_known_are_left_out() -> None:
    detector = Detector(["de", "pt-BR", "haw"])
    best = detector.best("Não sei onde fica a estação de comboios")
    assert best is not None and best.code == "pt-BR"
    assert Detector(["haw"]).detect("Aloha kakahiaka") == []
