"""Placeholders that translations must keep."""

from __future__ import annotations

import pytest

from rag_mt.text.placeholders import missing, placeholders


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Copied %d of %d files to %s", ["%d", "%d", "%s"]),
        ("%1$s sent %2$d items", ["%1$s", "%2$d"]),
        ("%(count)d new, %(name)s", ["%(count)d", "%(name)s"]),
        ("100 % sure, 5% discount on all", []),
        ("Saved %5.2f MB", ["%5.2f"]),
        ("Hello {name}, page {0} of {}", ["{name}", "{0}", "{}"]),
        ("{n, number} and {x:.2f}", ["{n, number}", "{x:.2f}"]),
        ("in ${HOME} and {{ user.name }}", ["${HOME}", "{{ user.name }}"]),
        ('Click <a href="x">here</a><br/>', ['<a href="x">', "</a>", "<br/>"]),
        ("3 < 5 and 7 > 2, a<b", []),
        ("fish&nbsp;&amp; chips &#160; R&D", ["&nbsp;", "&amp;", "&#160;"]),
        ("Write to a@b.org or https://x.org/%20", []),
        ("&Datei, Be&enden & AT&T, Müller & Söhne, {0}&", ["&", "&", "{0}"]),
        ("A set {1, 2} of numbers", ["{1, 2}"]),
    ],
)
def test_placeholders(text: str, found: list[str]) -> None:
    assert sorted(placeholders(text).elements()) == sorted(found)


def test_what_got_lost_or_added_is_named() -> None:
    assert missing("%d files in {dir}", "{dir}: %d Dateien") == []
    assert missing("%d files in {dir}", "Dateien in {ordner}") == [
        "placeholder lost: %d",
        "placeholder lost: {dir}",
        "placeholder added: {ordner}",
    ]
    assert missing("%s and %s", "%s") == ["placeholder lost: %s"]
    assert missing("&Datei öffnen", "Open file") == ["placeholder lost: &"]
