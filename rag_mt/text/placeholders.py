"""Placeholders of program texts: what must stand in a translation exactly as in the source."""

from __future__ import annotations

import re
from collections import Counter

_PLACEHOLDER = re.compile(
    r"""
      %\([^()\s]+\)[-+ 0#]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]      # %(name)s
    | %(?:\d+\$)?[-+0#]*\d*(?:\.\d+)?(?:hh|h|ll|l|z)?[diouxXeEfFgGcs@](?![A-Za-z])  # %s %1$d %5.2f %@
    | \$\{[^{}\s]+\}                                             # ${name}
    | \{\{\s*[\w.]+\s*\}\}                                       # {{ name }}
    | \{\w*(?:[.!:,][^{}\n]*)?\}                                 # {} {0} {name} {n:.2f} {n, number}
    | </?[A-Za-z][\w:.-]*(?:\s[^<>\n]*)?/?>                      # <b> </a> <br/>
    | &(?:[A-Za-z]\w*|\#\d+|\#x[0-9A-Fa-f]+);                    # &nbsp; &#160;
    | (?<!\w)&(?=[^\W\d_]) | (?<=[^\W\d_])&(?=[a-z])           # &File E&xit: the key of a menu entry; not R&D
    """,
    re.VERBOSE,
)


def placeholders(text: str) -> Counter[str]:
    """The placeholders of `text` and how often each occurs: printf, braces, shell, XML tags and entities, and
    the `&` before the letter that is the key of a menu entry."""
    return Counter(_PLACEHOLDER.findall(text))


def missing(source: str, translation: str) -> list[str]:
    """Notes on the placeholders that were lost, doubled or added, such as `placeholder lost: %s`."""
    want, have = placeholders(source), placeholders(translation)
    lost = [f"placeholder lost: {p}" for p in sorted((want - have).elements())]
    return lost + [f"placeholder added: {p}" for p in sorted((have - want).elements())]
