"""What people do with the demo, done in a real browser with the embedded models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import polib
import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.visitor import WIDE, Demo, Visitor

pytestmark = pytest.mark.browser

PHONE = ViewportSize(width=390, height=844)
TABS = ("Hints", "Prompt", "Compare", "History", "Documents", "Your text", "Glossary")
HINTED = "Nach einer angespannten Debatte bewilligte eine knappe Mehrheit zwölf Millionen Euro."
"""A sentence that the sample index has hints for."""
Picture = Callable[[Page, str], None]


def test_an_example_is_translated_and_every_hint_says_where_it_came_from(
    visitor: Visitor, picture: Picture, demo: Demo
) -> None:
    page = visitor.page
    page.locator("#example-news").click()
    expect(page.locator("#source textarea")).to_have_value(re.compile("Hochwasser"))
    expect(page.locator("#from input")).to_have_value("Detected: German")
    translation = visitor.translate()
    assert "bridge" in translation
    expect(page.locator("#state")).to_contain_text("ready")
    expect(page.locator("#from input")).to_have_value("Detected: German")

    phrase = page.locator("#marked [data-hint]").first
    number = phrase.get_attribute("data-hint")
    phrase.click()
    origin = page.locator(f'[data-origin="{number}"]')
    expect(origin).to_be_visible()
    expect(origin.locator("mark")).not_to_be_empty()
    expect(origin.locator("dl")).to_contain_text(re.compile(r"Score\s*0\.\d+\s*File\s*en\.txt\s*Line\s*\d+\s*Used"))
    expect(phrase).to_have_attribute("aria-expanded", "true")
    picture(page, "demo-light")

    row = page.locator("#hints-table [data-hint-row]").nth(1)
    row.locator("[data-hint]").click()
    expect(page.locator("[data-origin]:visible")).to_have_count(1)
    expect(page.locator(f'[data-origin="{row.get_attribute("data-hint-row")}"]')).to_be_visible()
    page.locator('#hints-table [data-hint-row] [data-label="Source"]').first.click()  # the row, beside its button
    expect(page.locator('[data-origin="1"]')).to_be_visible()

    visitor.open_tab("Prompt")
    shown = page.locator("#prompts pre").first.text_content() or ""
    assert "Nach einer angespannten Debatte" in shown
    (session,) = [s for s in demo.sessions.all() if s.history]
    assert shown == session.history[-1].translated.sentences[0].prompt


def test_a_hint_is_switched_off_and_the_model_is_not_shown_it_again(visitor: Visitor) -> None:
    page = visitor.page
    visitor.write(HINTED)
    visitor.translate()
    table = page.locator("#hints-table")
    row = table.locator("[data-hint-row]").first
    phrase = row.locator("mark").inner_text()
    row.locator('[role="switch"]').click()
    expect(row.locator('[role="switch"]')).to_have_attribute("aria-checked", "false")
    visitor.translate()
    expect(page.locator('#hints-table tr.mt-off [data-label="Used"]')).to_have_text("✕ off")
    visitor.open_tab("Prompt")
    assert f"[[{phrase}]]" not in (page.locator("#prompts").text_content() or "")


def test_a_translation_is_stopped_and_no_token_is_computed_afterwards(visitor: Visitor, demo: Demo) -> None:
    page = visitor.page
    visitor.write("Die Feuerwehr war die ganze Nacht im Einsatz, und viele halfen. " * 24)
    page.locator("#translate").click()
    growing = page.locator('.mt-output[aria-busy="true"]:not(:has(.mt-empty))')
    expect(growing).to_contain_text(re.compile(r"\w{3,}"))
    (job,) = [s.job for s in demo.sessions.all() if s.job is not None and s.job.state == "translating"]
    page.locator("#stop").click()
    expect(page.locator("#message")).to_contain_text("Stopped")
    assert job.cancelled_at is not None and job.last_token is not None
    page.wait_for_timeout(1000)
    last = job.last_token
    page.wait_for_timeout(2000)
    assert job.last_token == last
    expect(page.locator("#stop")).to_be_disabled()


def test_plain_and_retrieval_augmented_stand_side_by_side(visitor: Visitor) -> None:
    page = visitor.page
    visitor.write("Der Stadtrat hat den Bau einer neuen Brücke beschlossen.")
    translation = visitor.translate()
    visitor.open_tab("Compare")
    page.locator("#compare").click()
    expect(page.locator(".mt-side .mt-count").first).to_have_text(re.compile("differ|No difference"))
    expect(page.locator(".mt-side")).to_have_count(2)
    marks = re.sub(r"\[differs: |\]", "", page.locator(".mt-side p.mt-text").nth(1).text_content() or "")
    assert marks == translation


def test_a_po_file_comes_back_filled(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    source = tmp_path / "app.po"
    source.write_text(
        'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: en\\n"\n\n'
        '#: a.c:1\nmsgid "Der Drucker ist bereit."\nmsgstr ""\n\nmsgid "Fertig"\nmsgstr "Done"\n',
        encoding="utf-8",
    )
    visitor.choose("from", "Deutsch")
    visitor.open_tab("Documents")
    page.locator("#document-file input[type=file]").set_input_files(source)
    expect(page.locator("#document-file")).to_contain_text("app")
    page.locator("#document-start").click()
    expect(page.locator("#document-progress")).to_contain_text("Done")
    expect(page.locator('#document-progress [role="progressbar"]')).to_have_attribute("aria-valuenow", "100")
    with page.expect_download() as waiting:
        page.locator("#document-download").click()
    assert waiting.value.suggested_filename == "app.en.po"
    target = tmp_path / "filled.po"
    waiting.value.save_as(target)
    filled = polib.pofile(str(target))
    assert "printer" in filled[0].msgstr.lower() and "fuzzy" in filled[0].flags
    assert filled[1].msgstr == "Done"


def test_an_index_of_an_upload_is_built_used_renamed_and_deleted(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    corpus = tmp_path / "railway.txt"
    corpus.write_text(
        "The rack railway climbs to the summit station in forty minutes.\n"
        "In winter the rack railway is closed because of snow.\nThe summit station has a restaurant.\n",
        encoding="utf-8",
    )
    visitor.open_tab("Your text")
    page.locator("#index-files input[type=file]").set_input_files(corpus)
    page.locator("#index-name textarea, #index-name input").fill("mountain")
    page.locator("#index-start").click()
    expect(page.locator("#index-progress")).to_contain_text("The next translation searches it")
    expect(page.locator("#index-table")).to_contain_text("mountain")

    visitor.write("Im Winter ist die Zahnradbahn wegen Schnee geschlossen.")
    visitor.translate()
    visitor.open_tab("Hints")
    expect(page.locator('#hints-table [data-label="From"]').first).to_have_text(re.compile(r"railway\.txt:\d"))

    visitor.open_tab("Your text")
    page.locator("#index-new-name textarea, #index-new-name input").fill("Alps")
    page.locator("#index-rename").click()
    expect(page.locator("#index-table")).to_contain_text("Alps")
    page.locator("#index-delete").click()
    expect(page.locator("#index-table")).to_contain_text("You have no index yet")


def test_a_glossary_is_written_used_changed_and_deleted(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    lines, progress = page.locator("#glossary-terms textarea"), page.locator("#glossary-progress")
    visitor.open_tab("Glossary")
    lines.fill("Stadtrat,assembly")
    page.locator("#glossary-save").click()
    expect(progress).to_contain_text("Choose the source language first")
    visitor.choose("from", "Deutsch")
    upload = tmp_path / "city.csv"
    upload.write_text("de,en\nStadtrat,municipal assembly\n,nothing\n", encoding="utf-8")
    page.locator("#glossary-file input[type=file]").set_input_files(upload)
    expect(progress).to_contain_text("1 terms, skipped 1 lines")
    expect(lines).to_have_value(re.compile("^Stadtrat,municipal assembly,"))
    lines.fill("Stadtrat,municipal assembly,council,of <b>our</b> city\nFluss,river")
    page.locator("#glossary-save").click()
    expect(progress).to_contain_text("city (de → en, 2 terms)")

    visitor.write("Der Stadtrat hat eine neue Brücke beschlossen.")
    assert "municipal assembly" in visitor.translate()
    visitor.open_tab("Hints")
    row = page.locator("#terms-table tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("✓ yes")
    expect(row).to_contain_text("of <b>our</b> city")
    visitor.open_tab("Prompt")
    expect(page.locator("#prompts pre").first).to_contain_text("municipal assembly")

    visitor.open_tab("Glossary")
    page.locator("#glossary-delete").click()
    expect(progress).to_contain_text("Deleted")
    page.locator("#translate").click()
    expect(page.locator("#output")).not_to_contain_text("municipal assembly")  # the last translation is cleared first
    assert "municipal assembly" not in visitor.finished()


@pytest.mark.parametrize(
    ("name", "tab", "viewport"),
    [("light", "Glossary", WIDE), ("dark", "Hints", WIDE), ("phone", "Glossary", PHONE)],
)
def test_the_glossary_panel_fits_every_screen(
    name: str, tab: str, viewport: ViewportSize, visit: Callable[..., Visitor], picture: Picture
) -> None:
    visitor = visit(viewport, name == "dark")
    page = visitor.page
    visitor.choose("from", "Deutsch")
    visitor.open_tab("Glossary")
    page.locator("#glossary-name textarea, #glossary-name input").fill("city")
    page.locator("#glossary-terms textarea").fill(
        "Stadtrat,municipal assembly,city council,as in our charter\nBrücke,bridge,overpass\nFluss,river"
    )
    page.locator("#glossary-save").click()
    expect(page.locator("#glossary-progress")).to_contain_text("city (de → en, 3 terms)")
    visitor.write("Der Stadtrat hat den Bau einer neuen Brücke beschlossen.")
    assert "municipal assembly" in visitor.translate()
    visitor.open_tab(tab)
    top = "tab => window.scrollTo(0, tab.getBoundingClientRect().top + window.scrollY - 12)"
    page.get_by_role("tab", name=tab).evaluate(top)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    picture(page, f"glossary-{name}")


def test_context_consistency_and_style_are_settings(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open_settings()
    page.locator("#context input[type=number]").fill("2")
    page.locator("#consistent input").check()
    visitor.choose("from", "Deutsch")
    visitor.write("Das Museum ist geschlossen. Das Museum öffnet morgen.")
    translation = visitor.translate()
    assert translation.lower().count("museum") == 2
    visitor.open_tab("Prompt")
    expect(page.locator("#prompts pre")).to_have_count(4)  # both sentences are drafted first
    expect(page.locator("#prompts pre").last).to_contain_text("Similar, 30%: Das Museum ist geschlossen. = ")
    visitor.choose("formality", "Formal")
    page.locator("#translate").click()
    expect(page.locator("#message [role=alert]")).to_contain_text("formality cannot be asked of", ignore_case=True)


def test_two_visitors_at_once_see_nothing_of_each_other(visit: Callable[..., Visitor], tmp_path: Path) -> None:
    first, second = visit(), visit()
    secret = tmp_path / "secret-plan.txt"
    secret.write_text("The secret harbour opens in May.\n", encoding="utf-8")
    first.open_tab("Your text")
    first.page.locator("#index-files input[type=file]").set_input_files(secret)
    first.page.locator("#index-start").click()
    first.write("Der geheime Hafen öffnet im Mai.")
    second.write("Die Bäckerei ist am Sonntag geschlossen.")
    first.page.locator("#translate").click()
    second.page.locator("#translate").click()
    mine, yours = first.finished(), second.finished()
    assert mine != yours
    expect(first.page.locator("#index-table")).to_contain_text("secret-plan")
    for visitor in (first, second):
        visitor.open_tab("History")
    expect(first.page.locator("#history-table tbody tr")).to_have_count(1)
    expect(second.page.locator("#history-table tbody tr")).to_have_count(1)
    expect(second.page.locator("#history-table")).not_to_contain_text("Hafen")
    second.open_tab("Your text")
    expect(second.page.locator("#index-table")).to_contain_text("You have no index yet")
    assert not re.search("secret-plan|secret harbour", second.page.content())


def test_a_page_that_is_loaded_again_finds_its_index_but_no_history(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    text = tmp_path / "kept.txt"
    text.write_text("The tram runs every ten minutes.\n", encoding="utf-8")
    visitor.open_tab("Your text")
    page.locator("#index-files input[type=file]").set_input_files(text)
    page.locator("#index-start").click()
    expect(page.locator("#index-table")).to_contain_text("kept.txt")
    page.reload()
    page.locator("#translate").wait_for()
    visitor.open_tab("Your text")
    expect(page.locator("#index-table")).to_contain_text("kept.txt")


def test_hostile_texts_and_names_are_shown_as_text(visitor: Visitor) -> None:
    page = visitor.page
    attack = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    name = "<img src=x onerror=alert(3)>.txt"
    visitor.open_tab("Your text")
    corpus = f"The council {attack} meets today.\nThe council met {attack}.\n".encode()
    page.locator("#index-files input[type=file]").set_input_files(
        {"name": name, "mimeType": "text/plain", "buffer": corpus}
    )
    page.locator("#index-name textarea, #index-name input").fill(attack)
    page.locator("#index-start").click()
    expect(page.locator("#index-progress")).to_contain_text("The next translation searches it")
    expect(page.locator("#index-table")).to_contain_text("<script>alert(1)")
    visitor.choose("from", "Deutsch")
    visitor.write(f"Der Rat tagt heute {attack} ${{alert(4)}} {{{{x}}}} {attack}")
    visitor.translate()
    expect(page.locator("#marked")).to_contain_text("<script>alert(1)</script>")
    expect(page.locator("#marked")).to_contain_text("${alert(4)} {{x}}")
    for tab in ("Hints", "Prompt", "History"):
        visitor.open_tab(tab)
    assert page.locator("img[src='x'], #marked script, .gradio-container [onerror]").count() == 0


def test_the_history_is_saved(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    visitor.write("Der Zug wartet am Gleis drei.")
    translation = visitor.translate()
    visitor.open_tab("History")
    expect(page.locator("#history-table")).to_contain_text(translation)
    for name in ("tmx", "csv", "jsonl"):
        with page.expect_download() as waiting:
            page.locator(f"#save-{name}").click()
        assert waiting.value.suggested_filename == f"rag-mt-history.{name}"
        waiting.value.save_as(tmp_path / name)
    (line,) = (tmp_path / "jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["translation"] == translation
    assert translation in (tmp_path / "tmx").read_text(encoding="utf-8")


def test_everything_can_be_done_with_the_keyboard(visitor: Visitor) -> None:
    page = visitor.page
    page.locator("#source textarea").focus()
    page.keyboard.type(HINTED)
    page.keyboard.press("Control+Enter")
    visitor.finished()
    page.locator("#source textarea").focus()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#marked [data-hint]')"):
            break
    page.keyboard.press("Enter")
    expect(page.locator("[data-origin]:visible")).to_have_count(1)
    page.keyboard.press("Tab")  # the panel has the focus: its close button, then its switch
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.locator('[data-origin]:visible [role="switch"]')).to_have_attribute("aria-checked", "false")
    page.keyboard.press("Escape")
    expect(page.locator("[data-origin]:visible")).to_have_count(0)


def test_every_control_has_a_name_for_screen_readers(visitor: Visitor) -> None:
    page = visitor.page
    visitor.write(HINTED)
    visitor.translate()
    for tab in TABS:
        visitor.open_tab(tab)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('button, input, textarea, [role=switch], [role=tab]')]
            .filter((e) => e.offsetParent && !(e.ariaLabel || e.textContent.trim() || e.title ||
              (e.labels && [...e.labels].some((l) => l.textContent.trim()))))
            .map((e) => e.outerHTML.slice(0, 200))"""
        )
        assert nameless == [], tab


def test_a_phone_shows_everything_without_scrolling_sideways(visit: Callable[..., Visitor], picture: Picture) -> None:
    visitor = visit(PHONE)
    page = visitor.page
    visitor.write(HINTED)
    visitor.translate()
    page.locator("#marked [data-hint]").first.click()
    expect(page.locator("[data-origin]:visible")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    shown = page.locator("#from input")
    expect(shown).to_have_value("Detected: German")
    assert shown.evaluate("field => field.scrollWidth <= field.clientWidth"), "the language is cut"
    for tab in TABS:
        expect(page.get_by_role("tab", name=tab)).to_be_visible()
    page.evaluate("window.scrollTo(0, 0)")
    picture(page, "demo-phone")


def test_the_dark_page_is_dark(visit: Callable[..., Visitor], picture: Picture) -> None:
    visitor = visit(dark=True)
    page = visitor.page
    visitor.write(HINTED)
    visitor.translate()
    page.locator("#marked [data-hint]").first.click()
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", colour)[:3])) < 200
    picture(page, "demo-dark")


def test_text_runs_the_way_of_its_script(visitor: Visitor) -> None:
    field = visitor.page.locator("#source textarea")
    for text, direction in (("مرحبا بالعالم", "rtl"), ("שלום עולם", "rtl"), ("Guten Tag", "ltr")):
        visitor.write(text)
        assert field.evaluate("e => getComputedStyle(e).direction") == direction


def test_mistakes_are_told_in_a_sentence(visitor: Visitor) -> None:
    page = visitor.page
    page.locator("#translate").click()
    expect(page.locator("#message [role=alert]")).to_contain_text("There is no text")
    visitor.write("The council meets on Thursday evening in the town hall.")
    page.locator("#translate").click()
    expect(page.locator("#message [role=alert]")).to_contain_text("already: choose another target language")
    visitor.open_tab("Documents")
    page.locator("#document-start").click()
    expect(page.locator("#document-progress")).to_contain_text("There is no file")


def test_a_file_that_is_too_large_is_refused_once(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open_tab("Documents")
    field = page.locator("#document-file input[type=file]")
    field.set_input_files({"name": "book.txt", "mimeType": "text/plain", "buffer": b"a" * 21_000_000})
    refusal = page.locator('[data-refusal="document-file"]')
    expect(refusal).to_have_text("Not done: book.txt of 21 MB cannot be taken: choose at most 2 MB.")
    page.locator("#document-start").click()
    expect(page.locator("#document-progress")).to_have_text("No file yet.")
    assert page.locator(".toast-body").count() == 0
    field.set_input_files({"name": "page.txt", "mimeType": "text/plain", "buffer": b"Das Haus."})
    expect(refusal).to_be_hidden()


def test_the_detected_language_goes_with_its_text(visitor: Visitor) -> None:
    shown = visitor.page.locator("#from input")
    visitor.write("Der Stadtrat hat den Bau einer neuen Brücke beschlossen.")
    expect(shown).to_have_value("Detected: German")
    visitor.write("Kaupunginvaltuusto päätti rakentaa uuden sillan joen yli.")
    expect(shown).to_have_value("Detected: Finnish")
    visitor.write("")
    expect(shown).to_have_value("Auto-detect")


def test_the_languages_can_be_swapped_and_have_their_own_names(visitor: Visitor) -> None:
    page = visitor.page
    visitor.choose("from", "Čeština")
    expect(page.locator("#to input")).to_have_value("English")
    page.locator("#swap").click()
    expect(page.locator("#from input")).to_have_value("English")
    expect(page.locator("#to input")).to_have_value("Čeština · Czech")
