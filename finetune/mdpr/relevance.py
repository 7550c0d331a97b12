"""Questions with the passages that answer them, read from the formats in which they are published.

| format | what it reads |
|---|---|
| `dpr` | DPR's JSON: Natural Questions (`biencoder-nq-train.json`), TriviaQA and the like |
| `jsonl` | a line per question with `positive_passages` and `negative_passages`: Mr. TyDi, MIRACL and MS MARCO as Tevatron and the hub have them |
| `trec` | a folder with topics, judgements and a collection: MS MARCO, Mr. TyDi and MIRACL as their authors publish them |

`jsonl` is also what the project writes. Files may be compressed; `hf:NAME/CONFIG@SPLIT` is read through `datasets`.
"""  # noqa: E501

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_file
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.opening import open_bytes, read_lines
from rag_mt.formats.reading import PREFIX, hub_rows
from retrievers.bm25 import Bm25

CHUNK = 1 << 20
LONGEST_LINE = 10_000_000
"""Characters of a JSON line: one question may have a hundred passages."""
TOPICS = ("queries*.tsv*", "topic*.tsv*", "topics*.tsv*")
QRELS = ("qrels*",)
COLLECTIONS = ("collection*.tsv*", "docs*.jsonl*", "collection/docs*.jsonl*")
"""Files of a folder of format `trec`."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage; its id is the same in every language that the passage exists in."""

    id: str
    text: str
    title: str = ""

    @property
    def shown(self) -> str:
        """What the encoder reads: the title, if there is one, and the text."""
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Example:
    """A question with its relevant passages and passages that look like relevant ones but are not."""

    id: str
    query: str
    positives: tuple[Passage, ...]
    negatives: tuple[Passage, ...] = ()
    language: str = "en"


def read_examples(form: str, name: str, language: str, skips: Skips) -> Iterator[Example]:
    """The examples of a file, folder or `hf:` data set in one of `FORMATS`.

    A question without a relevant passage goes to `skips`. Raises UserError for an unknown format and for files that are
    missing or of another form.
    """
    if form not in FORMATS:
        raise UserError(f"unknown format {form!r} of relevance data: choose one of {', '.join(FORMATS)}")
    for number, example in enumerate(FORMATS[form](name, language), 1):
        if example.query.strip() and example.positives:
            yield example
        else:
            skips.add(Origin(name, number), "without a question or a relevant passage")


def write_examples(path: Path, examples: Iterable[Example]) -> int:
    """Write JSON lines; returns their number."""

    def packed(passages: Iterable[Passage]) -> list[dict[str, str]]:
        return [{"docid": p.id, "title": p.title, "text": p.text} for p in passages]

    count = 0
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        for example in examples:
            row = {
                "query_id": example.id,
                "query": example.query,
                "language": example.language,
                "positive_passages": packed(example.positives),
                "negative_passages": packed(example.negatives),
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def with_bm25_negatives(
    examples: Sequence[Example], collection: Sequence[Passage], language: str, depth: int, related: bool = True
) -> list[Example]:
    """The examples, each with its `depth` best other passages of the collection in place of its negatives, best first:
    passages that share terms with a question without answering it.

    The relevant passages of an example and, unless `related`, the other passages with a relevant one's title (parts of
    the same document) are no negatives.
    """
    terms = Bm25.build([p.shown for p in collection], language)
    by_id: dict[str, list[int]] = {}
    by_title: dict[str, list[int]] = {}
    for number, passage in enumerate(collection):
        by_id.setdefault(passage.id, []).append(number)
        if passage.title and not related:
            by_title.setdefault(passage.title, []).append(number)
    without = [
        [number for p in example.positives for number in (*by_id.get(p.id, ()), *by_title.get(p.title, ()))]
        for example in examples
    ]
    _, best = terms.top(terms.queries([e.query for e in examples], language), depth, without)
    return [
        replace(example, negatives=tuple(collection[n] for n in row if n >= 0))
        for example, row in zip(examples, best.tolist(), strict=True)
    ]


def json_rows(name: str) -> Iterator[dict[str, Any]]:
    """The rows of a file of JSON lines or of an `hf:` data set; raises UserError for a line that is no object."""
    if name.startswith(PREFIX):
        yield from hub_rows(name)
        return
    for number, line in enumerate(_lines(Path(name)), 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise UserError(f"{name}:{number} is no JSON object: expected one in each line")
        yield row


def passage_of(row: Mapping[str, Any]) -> Passage:
    """The passage of a JSON object with `docid`, `text` and maybe `title`."""
    return Passage(str(row["docid"]), row["text"], row.get("title") or "")


def _jsonl(name: str, language: str) -> Iterator[Example]:
    for number, row in enumerate(json_rows(name), 1):
        try:
            positives, negatives = row["positive_passages"], row.get("negative_passages") or ()
            passages = tuple(map(passage_of, positives)), tuple(map(passage_of, negatives))
            yield Example(str(row["query_id"]), row["query"], *passages, row.get("language") or language)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{name}:{number} is no question of format jsonl: expected query_id, query, positive_passages and "
                "negative_passages"
            ) from error


def _dpr(name: str, language: str) -> Iterator[Example]:
    for number, row in enumerate(_json_array(Path(name)), 1):
        try:
            kinds = ("positive_ctxs", "hard_negative_ctxs")
            positives, negatives = (tuple(map(_context, row.get(kind) or ())) for kind in kinds)
            yield Example(str(number), row["question"], positives, negatives, language)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{name}: question {number} is not of format dpr: expected question, positive_ctxs, hard_negative_ctxs"
            ) from error


def _context(row: Mapping[str, Any]) -> Passage:
    key = row.get("passage_id") or row.get("psg_id") or row["title"] + "\t" + row["text"]
    return Passage(str(key), row["text"], row.get("title") or "")


def _json_array(path: Path) -> Iterator[dict[str, Any]]:
    """The elements of a JSON array, one after the other: such files are larger than memory."""
    decoder = json.JSONDecoder()
    with open_bytes(path) as raw, io.TextIOWrapper(raw, "utf-8") as file:
        text = file.read(CHUNK).lstrip()
        if not text.startswith("["):
            raise UserError(f"{path} is no JSON array of questions: choose another format with --relevance")
        text = text[1:]
        while not (text := text.lstrip(" \t\r\n,")).startswith("]"):
            try:
                element, end = decoder.raw_decode(text)
            except ValueError:
                if not (chunk := file.read(CHUNK)):
                    raise UserError(f"{path} breaks off or is no JSON: fetch it again") from None
                text += chunk
                continue
            yield element
            text = text[end:]


def _trec(name: str, language: str) -> Iterator[Example]:
    """Topics (id, text), judgements (query, 0, passage, grade) and the passages that are judged."""
    folder = Path(name)
    queries = dict(_two_columns(_one_of(folder, TOPICS)))
    judged: dict[str, tuple[list[str], list[str]]] = {}
    for line in _lines(_one_of(folder, QRELS)):
        query, _, passage, grade, *_ = [*line.split(), "", "", "", ""]
        judged.setdefault(query, ([], []))[0 if grade not in ("", "0") else 1].append(passage)
    wanted = {key for both in judged.values() for keys in both for key in keys}
    passages = {p.id: p for p in read_collection(folder) if p.id in wanted}
    for query, both in judged.items():
        if query in queries:
            positives, negatives = (tuple(passages[k] for k in keys if k in passages) for keys in both)
            yield Example(query, queries[query], positives, negatives, language)


def read_collection(folder: Path) -> Iterator[Passage]:
    """All passages of a folder of format `trec`."""
    files = sorted(path for pattern in COLLECTIONS for path in folder.glob(pattern))
    if not files:
        raise UserError(f"{folder} holds no collection: expected one of {', '.join(COLLECTIONS)}")
    for path in files:
        if ".tsv" in path.suffixes:
            yield from (Passage(key, text) for key, text in _two_columns(path))
        else:
            for row in json_rows(str(path)):
                key = row.get("docid") or row.get("id") or row.get("_id")
                yield Passage(str(key), row.get("text") or row.get("contents") or "", row.get("title") or "")


def _one_of(folder: Path, patterns: tuple[str, ...]) -> Path:
    files = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    if len(files) != 1:
        named = ", ".join(p.name for p in files) or "none"
        raise UserError(f"{folder} has {named} for {' or '.join(patterns)}: expected one file, such as that of train")
    return files[0]


def _two_columns(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(_lines(path), 1):
        key, tab, text = line.partition("\t")
        if not tab:
            raise UserError(f"{path}:{number} has one column: expected an id and a text with a tab between them")
        yield key, text


def _lines(path: Path) -> Iterator[str]:
    return (line.text for line in read_lines(path, Skips(), LONGEST_LINE) if line.text)


FORMATS: Mapping[str, Callable[[str, str], Iterator[Example]]] = {"dpr": _dpr, "jsonl": _jsonl, "trec": _trec}
