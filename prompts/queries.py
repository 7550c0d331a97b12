"""Prompts that have a language model ask what a passage answers: questions to train passage retrieval with."""

from __future__ import annotations

from prompts.safety import Guard, one_line
from prompts.templates import filled, read_shots
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import LanguageModel, Prompt

LONGEST_PASSAGE = 1200
"""Characters of a passage that a prompt shows."""


def query_prompt(passage: str, code: str, llm: LanguageModel) -> Prompt:
    """Ask for one question, in the passage's language, that the passage answers: chat models by an instruction, others
    by two examples (in English where there are none in the language)."""
    guard = Guard(llm.reserved)
    shown = guard.neutral(one_line(passage[:LONGEST_PASSAGE]))
    if llm.has_chat_template:
        return Prompt(filled("queries/task", {"language": language(code).name, "passage": shown}), chat=True)
    shots = read_shots("queries/shots")  # passages with a question, each in several languages
    known = base_code(code) if base_code(code) in shots[0] else "en"
    examples = "\n\n".join(filled("queries/few-shot", shot[known]) for shot in shots) + "\n\n"
    text = examples + filled("queries/few-shot", {"passage": shown, "question": ""}).rstrip()
    return Prompt(text, shared=len(examples), stop=("\n",))


def question_of(answer: str) -> str:
    """The question in a model's answer, on one line; empty if there is none."""
    lines = [line.strip(" \"'“”„«»") for line in answer.strip().splitlines()]
    question = next((line for line in lines if line.endswith(("?", "？", "؟"))), "")
    return one_line(question)
