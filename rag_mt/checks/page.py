"""What was found in translations as a page of HTML that needs no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rag_mt.base.languages import language
from rag_mt.base.quality import ABOUT_QUALITY, QUALITY
from rag_mt.checks.segments import ABOUT_INCONSISTENT, INCONSISTENT, Checked, Checker

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem;
  color: #1d1d1f; background: #fff; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; }
th, td { text-align: start; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid #d0d0d5;
  overflow-wrap: anywhere; }
td.n { text-align: end; }
ul { margin: 0; padding-inline-start: 1.1rem; }
.error { color: #a40000; } .warning { color: #7a4b00; } .note, small { color: #5a5a60; }
@media (prefers-color-scheme: dark) {
  body { color: #eee; background: #1b1b1d; } th, td { border-color: #444; }
  .error { color: #ff8a80; } .warning { color: #ffcc80; } .note, small { color: #aaa; }
}
@media (max-width: 45rem) {
  table.segments, .segments tbody, .segments tr, .segments td { display: block; } .segments thead { display: none; }
}
"""


def page(found: Sequence[Checked], checker: Checker, source: str, target: str) -> str:
    """The page: how often each rule found something, then each translation with findings in the order of the file."""
    languages = f"{language(source).name} to {language(target).name}"
    summary = f"{checker.segments} translations, {languages}; {len(found)} with findings."
    about = {
        **{rule.name: rule.about for rule in checker.rules},
        INCONSISTENT: ABOUT_INCONSISTENT,
        QUALITY: ABOUT_QUALITY,
    }
    rules = "".join(
        f"<tr><td>{name}</td><td>{escape(about[name])}</td><td class=n>{checker.counts[name]}</td></tr>"
        for name in about
        if checker.counts[name]
    )
    rows = "".join(_row(checked, source, target) for checked in found)
    heads = [("Rule", "What it finds", "Findings"), ("Place", "Source", "Translation", "Findings")]
    of_rules, of_segments = ("".join(f"<th>{name}</th>" for name in names) for names in heads)
    return (
        f"<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>Findings</title>"
        f'<meta name=viewport content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
        f"<h1>Findings</h1><p>{escape(summary)}</p>"
        f"<table><thead><tr>{of_rules}</tr></thead><tbody>{rules}</tbody></table>"
        f"<table class=segments><thead><tr>{of_segments}</tr></thead><tbody>{rows}</tbody></table></body></html>\n"
    )


def _row(checked: Checked, source: str, target: str) -> str:
    findings = "".join(
        f"<li class={f.severity}>{escape(f.message)} <small>{f.severity}, {f.rule}</small></li>"
        for f in checked.findings
    )
    return (
        f"<tr><td><small>{escape(str(checked.origin))}</small></td>"
        f'<td lang="{source}" dir=auto>{escape(checked.pair.source)}</td>'
        f'<td lang="{target}" dir=auto>{escape(checked.pair.target)}</td><td><ul>{findings}</ul></td></tr>\n'
    )
