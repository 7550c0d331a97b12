"""Saying of files of an index what their domain is and which day they are from, so that some can be searched alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from rag_mt.base.errors import UserError
from rag_mt.base.only import Label, Only, is_named
from retrievers.index.manifest import Manifest, change_manifest
from retrievers.index.places import place_text

JOB = "labelling"


def label_files(
    folder: Path,
    manifest: Manifest,
    files: Collection[str],
    patterns: Sequence[str],
    domain: str | None,
    date: str | None,
) -> tuple[Manifest, list[str]]:
    """Label those of the `files` of an index, all of which are given, that patterns name (see `Only`): what is None
    stays, what is empty is taken away. Returns the new manifest, and the files that are labelled. Raises UserError for
    a pattern without a file, a domain or date that is none, and where neither is given."""
    if domain is None and date is None:
        raise UserError(f"nothing is said of {', '.join(patterns)}: give --domain or --date (domain=, date=)")
    new = Label(domain or "", date or "").as_dict()
    gone = {name for name, value in (("domain", domain), ("date", date)) if value == ""}
    for pattern in patterns:
        if not any(is_named(name, pattern) for name in files):
            there = ", ".join(sorted(files)[:3])
            raise UserError(f"index {place_text(folder)} has no file {pattern}: name one that it has, such as {there}")
    names = Only(tuple(patterns)).among(files, {})

    def change(now: Manifest) -> Manifest:
        labels = {name: dict(label) for name, label in now.labels.items()}
        for name in names:
            label = labels.get(name, {}) | new
            labels[name] = {key: value for key, value in label.items() if key not in gone}
        return replace(now, labels={name: label for name, label in sorted(labels.items()) if label})

    return change_manifest(folder, manifest, JOB, change), names
