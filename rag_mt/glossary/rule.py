"""The rule of `rag-mt check` that finds terms of a glossary that a translation does not keep to."""

from __future__ import annotations

from rag_mt.base.terms import Usage
from rag_mt.checks.rules import Pair, Rule
from rag_mt.glossary.glossary import Glossary

TERMS = "terms"
"""The rule's name."""


def terms_rule(glossary: Glossary) -> Rule:
    """The rule for a glossary, whose languages those of the pairs are."""

    def found(pair: Pair) -> list[str]:
        usages = {match.term: glossary.used(match, pair.target) for match in reversed(glossary.matches(pair.source))}
        return [message for usage in reversed(usages.values()) for message in faults(usage)]

    return Rule(TERMS, "error", "a term is not translated as the glossary has it", found)


def faults(usage: Usage) -> list[str]:
    """What is wrong with how a translation uses a term, one sentence each."""
    term = usage.match.term
    missing = [f"term not used: {term.source} = {' or '.join(term.allowed)}"] if usage.missing else []
    return [*missing, *(f"forbidden term used: {use.translation}" for use in usage.forbidden)]
