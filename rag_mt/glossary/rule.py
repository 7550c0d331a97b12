"""The rule of `rag-mt check` that finds terms of a glossary that a translation does not keep to."""

from __future__ import annotations

from rag_mt.checks.rules import Pair, Rule
from rag_mt.glossary.glossary import Glossary

TERMS = "terms"
"""The rule's name."""


def terms_rule(glossary: Glossary) -> Rule:
    """The rule for a glossary, whose languages those of the pairs are."""

    def found(pair: Pair) -> list[str]:
        usages = (glossary.used(match, pair.target) for match in glossary.first_matches(pair.source))
        return [fault for usage in usages for fault in usage.faults]

    return Rule(TERMS, "error", "a term is not translated as the glossary has it", found)
