"""Which files are looked at."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.only import Label, Only, in_words, labelled
from rag_mt.formats.reading import place_of

LABELS = {
    "2023/law.txt": {"domain": "law", "date": "2023-05-01"},
    "2024/law.txt": {"domain": "law", "date": "2024-05-01"},
    "2024/news.txt": {"domain": "news"},
    "dated.txt": {"date": "2024-05-02"},
}
FILES = [*LABELS, "2024/[old].txt"]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (Only(), FILES),
        (Only(("law.txt",)), FILES[:2]),
        (Only(("2024/*",)), [FILES[1], FILES[2], FILES[4]]),
        (Only(("LAW.txt",)), []),
        (Only(("d?ted.txt", "*/news.txt")), FILES[2:4]),
        (Only(("2024/[old].txt",)), FILES[4:]),
        (Only(("[old].txt",)), FILES[4:]),
        (Only(("[a-d]*",)), FILES[3:4]),
        (Only(domains=("law",)), FILES[:2]),
        (Only(domains=("law", "news"), files=("2024/*",)), FILES[1:3]),
        (Only(since="2024-05-01"), [FILES[1], FILES[3]]),
        (Only(until="2024-05-01"), FILES[:2]),
        (Only(since="2024-05-02", until="2024-05-02"), FILES[3:4]),
        (Only(domains=("news",), until="2999-01-01"), []),
    ],
)
def test_files_are_chosen_by_name_domain_and_date(only: Only, expected: list[str]) -> None:
    assert only.among(FILES, LABELS) == expected


def test_what_is_the_same_is_equal() -> None:
    assert Only("a", domains=[" law ", "law "]) == Only(("a",), ("law",))
    assert Only(["a", "b", "a"]) == Only(("a", "b")) and hash(Only(["a"]))
    assert Only(["b", "a"], [" news", "law"]) == Only(("a", "b"), ("law", "news"))
    assert hash(Only(["b", "a"])) == hash(Only(["a", "b"]))
    assert Only(Path("2024/a.txt")) == Only([Path("2024/a.txt")]) == Only("2024/a.txt")
    assert Only([Path("a"), "b"]).files == ("a", "b") and Only(domains="law").domains == ("law",)
    assert Only(since=date(2024, 5, 1)) == Only(since="2024-5-1")
    assert Only(until=datetime(2024, 5, 1, 23)).until == "2024-05-01"
    assert not Only() and Only(until="2024-05-01")
    assert str(Only(("a*", "b"), ("law",), "2024-05-01", "2024-05-02")) == (
        "named a* or b, of the domain law, dated since 2024-05-01 until 2024-05-02"
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"since": "1.5.2024"}, "'1.5.2024' is no date: expected year, month and day, such as 2024-05-31"),
        ({"until": "2024-02-30"}, "is no date"),
        ({"since": "20240501"}, "is no date"),
        ({"since": 5}, "5 is no date"),
        ({"since": "2024-05-02", "until": "2024-05-01"}, "no day is since 2024-05-02 and until 2024-05-01"),
        ({"domains": ("a\tb",)}, "is no name of a domain"),
        ({"domains": ("a" * 101,)}, "is no name of a domain"),
        ({"domains": (" ",)}, "is no name of a domain"),
        ({"files": ("a", "")}, "an empty text is among the files"),
        ({"files": 5}, "5 is no name of a file: expected a text or a path"),
        ({"files": ["a", ["b"]]}, r"\['b'\] is no name of a file"),
        ({"files": b"a"}, "b'a' is no name of a file"),
        ({"domains": 5}, "5 is no name of a domain"),
        ({"domains": 0}, "0 is no name of a domain"),
        ({"domains": [Path("law")]}, "is no name of a domain"),
    ],
)
def test_what_cannot_be_asked_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Only(**values)


def test_new_files_take_the_label_and_keep_what_it_does_not_say() -> None:
    files, new = ["2024/law.txt", "new.txt", "plain.txt"], ["new.txt", "2024/law.txt"]
    assert labelled(LABELS, files, new, Label("sport"), place_of) == {
        "2024/law.txt": {"domain": "sport", "date": "2024-05-01"},
        "new.txt": {"domain": "sport"},
    }
    assert labelled(LABELS, FILES, ["new.txt"], Label(), place_of) == LABELS
    assert labelled({}, ["a"], ["gone.txt"], Label("law"), place_of) == {}


def test_a_new_file_by_another_name_keeps_what_is_known_of_it() -> None:
    names = [str(Path("2024/law.txt").resolve()), "./2024/../dated.txt", "s3://b/x.txt"]
    law, day = LABELS["2024/law.txt"], {"date": "2024-05-02"}
    assert labelled(LABELS, names, names, Label(), place_of) == {names[0]: law, names[1]: day}
    assert labelled(LABELS, names, names[:1], Label("sport"), place_of) == {names[0]: law | {"domain": "sport"}}


def test_labels_in_words() -> None:
    assert in_words(LABELS) == "domains law, news; dates 2023-05-01 to 2024-05-02"
    assert in_words({"a": {"date": "2024-05-02"}}) == "dates 2024-05-02"
    many = {str(n): {"domain": f"d{n}"} for n in range(9)}
    assert in_words(many) == "domains d0, d1, d2, d3, d4, d5, d6, d7, ..."
