"""The layout of the translation itself: languages, texts, examples, settings, hints, and the tabs about the result."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import gradio as gr

from prompts.style import LONGEST_INSTRUCTION, LONGEST_TITLE
from rag_mt.base.defaults import DEFAULT_LLM
from ui.page import menus
from ui.page.markup import escaped, message, sentence_case
from ui.page.menus import Entries
from ui.page.translating import AUTO, Asked, View, empty_view
from ui.server.bodies import MOST_CONTEXT
from ui.server.service import Service

ALL_HINTS = 32
"""As many as a prompt ever shows."""

SWITCHES = """element.addEventListener('click', (event) => {
  const pressed = event.target.closest('[data-switch]');
  if (pressed) trigger('toggle', {hint: Number(pressed.dataset.switch)});
});"""
"""Tells the server which hint's switch was pressed."""

LEGEND = (
    '<p class="mt-legend"><span><b class="mt-hint mt-used">phrase<sup>✓</sup></b> used word for word</span>'
    '<span><b class="mt-hint mt-unused">phrase</b> shown to the model</span>'
    '<span><b class="mt-hint mt-off">phrase<sup>✕</sup></b> switched off</span>'
    "<span>Press a phrase to see where it came from.</span></p>"
)

EXPECT = (
    f"with the small model {DEFAULT_LLM} hints show where words come from; on average they do not improve its "
    "translations (docs/demo.md)"
)
"""What to expect of hints, said on the page and when the demo starts."""

FAST: dict[str, Any] = {"queue": False, "preprocess": False, "show_progress": "hidden", "api_visibility": "private"}
"""Events that the server answers at once, on the values as the page sends them. Gradio would refuse one that a list no
longer has, but a page may send it before the answer that changed the list has come."""
LONG: dict[str, Any] = {"concurrency_limit": None, "show_progress": "hidden", "api_visibility": "private"}
"""Events that follow work until it ends; the engine's queue is the one that counts."""


def still_chosen(entries: Entries, value: str) -> Any:
    """A list with these entries, titles and values, and the one of that value chosen as long as it is there."""
    return gr.update(choices=entries, value=value if value in [own for _, own in entries] else "")


def html_part(value: str | None, **options: Any) -> Any:
    """A part of the page that is drawn as HTML of ours, in our own styles."""
    return gr.HTML(value or "", apply_default_css=False, padding=False, **options)


def _expectation(service: Service) -> str:
    """What to expect of hints where the small model is offered, as HTML."""
    if DEFAULT_LLM not in service.llms:
        return ""
    return f'<p class="mt-legend">{escaped(sentence_case(EXPECT))}</p>'


class Layout:
    """The parts that events read and write, drawn from top to bottom; other tabs may be added to `tabs`."""

    def __init__(self, service: Service, llm: str) -> None:
        """`llm` is the language model that is chosen at first."""
        begin = empty_view(menus.first_target(service))
        with gr.Row(elem_classes="mt-languages"):
            self.source = gr.Dropdown(
                menus.source_entries(service), value=AUTO, label="From", elem_id="from", filterable=True, min_width=90
            )
            self.swap = gr.Button("⇄", elem_id="swap", elem_classes="mt-swap", scale=0, min_width=44)
            self.target = gr.Dropdown(
                menus.target_entries(service, AUTO),
                value=menus.first_target(service),
                label="To",
                elem_id="to",
                filterable=True,
                min_width=90,
            )
        with gr.Row(elem_classes="mt-panes"):
            with gr.Column(min_width=280):
                self.text = gr.Textbox(
                    label=f"Text to translate, up to {service.limits.text_chars:,} characters",
                    placeholder="Type or paste text, or choose an example below.",
                    lines=8,
                    max_lines=16,
                    elem_id="source",
                )
            with gr.Column(min_width=280):
                self.output = html_part(begin.output, elem_id="output")
        with gr.Row(elem_classes="mt-actions"):
            self.translate = gr.Button("Translate", variant="primary", elem_id="translate", scale=0, min_width=150)
            self.stop = gr.Button("Stop", interactive=False, elem_id="stop", scale=0, min_width=90)
            self.message = html_part(message("Ctrl + Enter translates, Esc stops."), elem_id="message")
        with gr.Row(elem_classes="mt-examples", elem_id="examples"):
            html_part('<span class="mt-examples-label">Examples</span>', elem_classes="mt-examples-head", min_width=80)
            self.examples = {
                subject: gr.Button(name, size="sm", scale=0, min_width=60, elem_id=f"example-{subject}")
                for subject, name in menus.SUBJECTS.items()
            }
        with gr.Accordion("Settings", open=False, elem_id="settings"):
            self._settings(service, llm)
        with gr.Column(elem_classes="mt-card", elem_id="marked"):
            html_part(f"<h2>Source text with its hints</h2>{LEGEND}{_expectation(service)}")
            self.marked = html_part(begin.source)
            self.origins = html_part(begin.origins, js_on_load=SWITCHES, elem_id="origins")
        with gr.Tabs(overflow_behavior="wrap") as self.tabs:
            with gr.Tab("Hints", id="hints"):
                self.findings = html_part(begin.findings, elem_id="findings-table")
                self.terms = html_part(begin.terms, elem_id="terms-table")
                self.table = html_part(begin.table, js_on_load=SWITCHES, elem_id="hints-table")
            with gr.Tab("Prompt", id="prompt", render_children=True):
                self.prompt = html_part(begin.prompt, elem_id="prompts")
            with gr.Tab("Compare", id="compare", render_children=True):
                self.compare = gr.Button("Translate without hints too", elem_id="compare", size="md")
                self.comparison = html_part(begin.comparison, elem_id="comparison")

    def _settings(self, service: Service, llm: str) -> None:
        with gr.Row():
            self.retriever = gr.Dropdown(
                [menus.FITTING, *menus.retriever_entries()], value="", label="Retrieval", info="What looks for hints."
            )
            self.index = gr.Dropdown(
                [menus.SAMPLE], value="", label="Text to search", info="Your own texts are added under “Your text”."
            )
        self.glossary = gr.Dropdown(
            [menus.NO_GLOSSARY],
            value="",
            label="Glossary",
            info="Terms to keep to; your own are written under “Glossary”.",
            elem_id="use-glossary",
        )
        self.min_quality = gr.Dropdown(
            menus.MIN_QUALITY,
            value="",
            label="Estimate of quality",
            info="What people would give the translation, without a reference.",
            elem_id="min-quality",
        )
        with gr.Row():
            self.llm = gr.Dropdown(
                list(service.llms), value=llm, label="Language model", info="What translates.", elem_id="llm"
            )
            self.adapter = gr.Dropdown(
                [(menus.ADAPTER_NAMES.get(name, name), name) for name in service.adapters],
                value=service.default_adapter(llm),
                label="Adapter",
                info="Tuned weights for the model.",
                elem_id="adapter",
            )
        with gr.Row():
            self.context = gr.Slider(
                0,
                MOST_CONTEXT,
                0,
                step=1,
                label="Sentences before each one that are shown with it",
                info="With their translations, and half as many behind it.",
                elem_id="context",
            )
            self.consistent = gr.Checkbox(
                label="Consistent terms",
                info="What differs from the rest of the text is translated again.",
                elem_id="consistent",
            )
        with gr.Row():
            self.formality = gr.Dropdown(menus.FORMALITY, value="", label="Form of address", elem_id="formality")
            self.instruction = gr.Textbox(
                label="Instruction",
                info="Tone, audience, rules. It and the form of address need a model that follows instructions.",
                max_length=LONGEST_INSTRUCTION,
                elem_id="instruction",
            )
            self.title = gr.Textbox(
                label="Title",
                info="Of the document that the text is from, for such a model.",
                max_length=LONGEST_TITLE,
                elem_id="title",
            )
        with gr.Row():
            self.hints = gr.Slider(
                0, ALL_HINTS, ALL_HINTS, step=1, label="Hints per sentence, at most", info=f"{ALL_HINTS} means all."
            )
            self.score = gr.Slider(
                0,
                1,
                0,
                step=0.01,
                label="Least score of a hint",
                info="0 leaves it to the index's own cut-off, below which nothing is shown.",
            )

    @property
    def asked(self) -> list[Any]:
        """The inputs of `asked_from`."""
        named = (self.text, self.source, self.target, self.retriever, self.index, self.llm, self.adapter, self.glossary)
        style = (self.min_quality, self.formality, self.instruction, self.title)
        return [*named, *style, self.hints, self.score, self.context, self.consistent]

    @property
    def views(self) -> list[Any]:
        """The outputs of `updates`."""
        html = (self.message, self.output, self.marked, self.origins, self.table, self.prompt, self.comparison)
        return [*html, self.terms, self.findings, self.stop]


def asked_from(*values: Any) -> Asked:
    """The request in the values of `Layout.asked`."""
    *names, hints, score, context, consistent = values
    text, source, target, retriever, index, llm, adapter, *further = (name or "" for name in names)
    glossary, quality, formality, instruction, title = further
    max_hints = None if hints >= ALL_HINTS else int(hints)
    choice = (text, source, target, retriever, index, llm, adapter, max_hints, float(score))
    return Asked(*choice, glossary, quality, formality, instruction, title, int(context), bool(consistent))


def updates(view: View) -> list[Any]:
    """A view for `Layout.views`."""
    *html, running = astuple(view)
    return [*(gr.skip() if part is None else part for part in html), gr.update(interactive=running)]
