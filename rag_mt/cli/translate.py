"""Translate files or standard input: `rag-mt translate --src de FILE`, or `python -m rag_mt.translate`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from rag_mt.base.console import (
    INTERRUPTED,
    OK,
    PARTLY,
    Parser,
    add_model_options,
    add_server_options,
    note,
    positive,
    progress,
    run,
)
from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_LLM, SEARCHING
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import file_sha256
from rag_mt.base.languages import language
from rag_mt.base.paths import whole_file
from rag_mt.base.types import ELLIPSIS, Skips, TranslatedText, Translation

DESCRIPTION = "Translate files or standard input. An interrupted job with -o goes on with the same command."

if TYPE_CHECKING:
    from rag_mt.formats.format import Format, Side
    from rag_mt.translation.jobs import Counts, SplitSegment
    from rag_mt.translation.translator import Translator


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options of the command; the default models are named where they are loaded."""
    add = parser.add_argument
    add("files", nargs="*", metavar="FILE", help="files to translate (default: standard input)")
    add("--src", required=True, metavar="LANG", help="language of the input: a code such as de, or an English name")
    add("--tgt", default="en", metavar="LANG", help="language of the output (default: en)")
    add("--retriever", help=f"what finds hints: none, {SEARCHING} (default: that of the index, or ccpr)")
    add("--index", metavar="DIR", help="index of target-language text (default: one of the sample corpus)")
    add(
        "--encoder",
        metavar="ID",
        help="encoder or phrase model: a name, a hub id or a folder (default: the index's)",
    )
    add(
        "--llm",
        default=DEFAULT_LLM,
        metavar="ID",
        help="language model: a hub id, a folder, embedded:NAME or openai:MODEL@URL",
    )
    add("--adapter", metavar="DIR", default=DEFAULT_ADAPTER, help="PEFT adapter of the LLM, or none (default: ours)")
    add("--wrapper", default="auto", help="prompt family: auto, alpaca, few-shot, chat or compact (default: auto)")
    add("--format", default="auto", help="auto, text, tsv, jsonl, tmx, po or xliff (default: auto)")
    add("--column", default="", help="column (number from 1, or name) of a TSV or field of a JSONL input")
    add("--show-hints", action="store_true", help="show the hints of every sentence and where they came from")
    add(
        "-o",
        "--output",
        metavar="FILE",
        help="output file or, ending with / or for several inputs, folder; resumable",
    )
    add("--restart", action="store_true", help="forget what an interrupted job had finished")
    add("--batch-size", type=positive, default=16, metavar="N", help="sentences per model call (default: 16)")
    add("--max-new-tokens", type=positive, default=256, metavar="N", help="longest answer (default: 256)")
    add_server_options(parser)
    add("--quantization", default="none", help="none, 8bit or 4bit (needs CUDA and bitsandbytes)")
    add("--quiet", action="store_true", help="no progress bar")
    add_model_options(parser)


def translate(options: argparse.Namespace) -> int:
    """Run the command; returns its exit code."""
    if language(options.src).code == language(options.tgt).code:
        raise UserError(f"source and target are both {language(options.src).name}: give another --src or --tgt")
    with _inputs(options.files) as inputs:
        outputs = _outputs(options.output, [name for _, name in inputs])
        from rag_mt.formats.format import Side
        from rag_mt.translation.jobs import Counts

        side = Side(language(options.src).code, options.column, language(options.tgt).code)
        spooled = [path.parent for path, name in inputs if name == "-"]
        totals, skips = Counts(), Skips(folder=f"{spooled[0]}{os.sep}" if spooled else "")
        jobs: list[_FileJob] = []
        unreadable: list[UserError] = []
        for (path, _), output in zip(inputs, outputs, strict=True):
            # Everything is read before a model is loaded: a wrong file costs a second, not a minute.
            try:
                jobs.append(_read(path, side, output, options, skips))
            except UserError as error:
                unreadable.append(error)
        if not jobs:
            raise unreadable[0]
        for reason in unreadable:
            note(f"left out: {reason}")
        translator = _translator(options)
        for job in jobs:
            _one(translator, job, totals, options)
    code = _closing_lines(totals, skips, options.show_hints)
    if unreadable:
        note(f"{len(unreadable)} of {len(inputs)} files could not be read and are not translated")
    return PARTLY if unreadable else code


@dataclass(frozen=True)
class _FileJob:
    """A file to translate: its format, what to translate in it, where to (None: standard output), and its segments."""

    path: Path
    form: Format
    side: Side
    output: Path | None
    segments: list[SplitSegment]

    @property
    def sentences(self) -> int:
        return sum(len(part.spans) for part in self.segments)


def _read(path: Path, side: Side, output: Path | None, options: argparse.Namespace, skips: Skips) -> _FileJob:
    """Read a file; bad lines are reported here. Raises UserError if it cannot be translated."""
    from rag_mt.formats.registry import format_of
    from rag_mt.translation.jobs import split_segments

    form = format_of(path, options.format)
    return _FileJob(path, form, side, output, split_segments(form.segments(path, side, skips), side.language))


@contextmanager
def _inputs(names: Sequence[str]) -> Iterator[list[tuple[Path, str]]]:
    """The input files with their names; standard input is spooled to a temporary file, which errors do not name."""
    with tempfile.TemporaryDirectory(prefix="rag-mt-") as folder:
        inputs, stdin = [], Path(folder) / "stdin"
        for name in names or ["-"]:
            path = Path(name)
            if name == "-":
                path = stdin
                if sys.stdin.isatty():
                    note("reading from the terminal: end with Ctrl-D")
                with path.open("wb") as file:
                    shutil.copyfileobj(sys.stdin.buffer, file)
            elif not path.exists():
                raise UserError(
                    f"input file {name} does not exist: expected a path to a text, TSV, JSONL, TMX, PO or XLIFF file"
                )
            inputs.append((path, name))
        try:
            yield inputs
        except UserError as error:
            raise UserError(str(error).replace(str(stdin), "standard input")) from error


def _outputs(output: str | None, names: Sequence[str]) -> list[Path | None]:
    """Where each input's translation goes; None is standard output."""
    if not output:
        if len(names) > 1:
            raise UserError(f"{len(names)} inputs cannot share standard output: give a folder for them with -o DIR")
        return [None] * len(names)
    out = Path(output).resolve()  # a link stays, and what it points to is written
    new_folder = output.endswith(("/", os.sep)) and not out.is_dir()
    if new_folder:
        above = next(parent for parent in (out, *out.parents) if parent.exists())
        if not (above.is_dir() and os.access(above, os.W_OK)):
            raise UserError(f"-o {output} cannot be made a folder: {above} is a file or cannot be written")
    elif len(names) == 1 and not out.is_dir():
        if out.exists() and not out.is_file():
            raise UserError(f"-o {output} is no file: leave -o out to write to standard output")
        if not os.access(out.parent, os.W_OK):
            raise UserError(f"folder {out.parent} of -o {output} does not exist or cannot be written: choose another")
        return [_apart(out, names[0])]
    elif not out.is_dir():
        raise UserError(f"-o {out} is not a folder: {len(names)} inputs need one; end its name with / to have it made")
    if "-" in names:
        raise UserError(f"standard input has no name for a file in {out}: give a file with -o {out / 'NAME'}")
    paths: list[Path | None] = [_apart(out / Path(name).name, name) for name in names]
    if len(set(paths)) < len(paths):
        raise UserError(f"two inputs have the same file name: translate them into different folders, not both to {out}")
    return paths


def _apart(output: Path, name: str) -> Path:
    """The output path; raises UserError if it is the input file itself."""
    if name != "-" and output.exists() and output.samefile(name):
        raise UserError(f"-o {output} would overwrite the input {name}: give another file or folder")
    return output


def _translator(options: argparse.Namespace) -> Translator:
    from rag_mt.translation.translator import Translator

    return Translator.from_pretrained(
        src=options.src,
        tgt=options.tgt,
        retriever=options.retriever,
        llm=options.llm,
        index=options.index,
        encoder=options.encoder,
        adapter=options.adapter,
        wrapper=options.wrapper,
        device=options.device,
        dtype=options.dtype,
        quantization=options.quantization,
        batch_size=options.batch_size,
        max_new_tokens=options.max_new_tokens,
        llm_timeout=options.llm_timeout,
        llm_concurrency=options.llm_concurrency,
        show=not options.quiet,
    )


def _one(translator: Translator, job: _FileJob, totals: Counts, options: argparse.Namespace) -> None:
    """Translate one file to its output or standard output."""
    from rag_mt.formats.opening import compressed
    from rag_mt.translation.jobs import WINDOW, Echo, stream_segments, translate_segments
    from rag_mt.translation.journal import Journal

    path, form, side, output, total = job.path, job.form, job.side, job.output, job.sentences
    journal = None
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        place = output.with_name(output.name + ".rag-mt-journal")
        settings: dict[str, Any] = {
            **translator.settings,
            "input": file_sha256(path),
            "format": [form.name, side.column],
            "batching": [options.batch_size, WINDOW],
        }
        journal = Journal(place, settings, options.restart)
        if journal.kept:
            note(f"{output}: kept {journal.kept} of {total} sentences of the interrupted job")
    streaming = output is None and form.name == "text" and sys.stdout.isatty() and not options.show_hints
    live = Echo(sys.stdout.buffer) if streaming else None
    with closing(progress(total, "sentences", "translating", show=not options.quiet and not live)) as bar:
        try:
            if live:
                made = stream_segments(translator, job.segments, live, totals.add)
            else:
                made = translate_segments(translator, job.segments, totals, journal, bar.update)
            if options.show_hints:
                made = _shown(made, bar)
            if output is None:
                form.fill(path, side, made, cast(BinaryIO, live or sys.stdout.buffer))
                sys.stdout.buffer.flush()
            else:
                with whole_file(output) as part, part.open("wb") as file, compressed(file, output) as packed:
                    form.fill(path, side, made, packed)
        except KeyboardInterrupt:
            if journal:
                journal.close()
                note(f"interrupted: {journal.finished} of {total} sentences are kept; the same command goes on there")
                raise SystemExit(INTERRUPTED) from None
            raise
    if journal:
        journal.finish()


def _shown(texts: Iterator[TranslatedText], bar: Any) -> Iterator[TranslatedText]:
    """The same texts; the hints of each are written to stderr as it passes."""
    for text in texts:
        bar.clear()
        for translation in text.sentences:
            note(describe(translation))
        yield text


def describe(translation: Translation) -> str:
    """A sentence with its translation and hints for people: score, phrase, origin, context, whether taken up."""
    lines = [f"{translation.source.text}", f"  = {translation.text}"]
    for hint, used in zip(translation.hints, translation.used, strict=True):
        source = hint.source_span.of(translation.source.text)
        whole = len(hint.source_span) == len(translation.source.text)
        asked = "" if whole else f"{source} -> "
        context = hint.context()
        alone = context.text.removeprefix(ELLIPSIS).removesuffix(ELLIPSIS) == hint.phrase
        whole_hit = len(hint.hit.span) == len(hint.hit.sentence.text)
        shown = context.text if alone or whole_hit else f"{hint.phrase}   ({context.marked('[[', ']]')})"
        shown = " ".join(shown.splitlines())
        mark = "used" if used else "    "
        lines.append(f"  {hint.hit.score:.3f} {mark} {asked}{shown}   {hint.hit.sentence.source}")
    lines += [f"  note: {n}" for n in translation.notes]
    return "\n".join(lines)


def _closing_lines(counts: Counts, skips: Skips, show_hints: bool) -> int:
    """Say what was done, what not, and return the exit code."""
    if not counts.sentences:
        note("nothing to translate: the input holds no text")
    if show_hints and counts.sentences:
        share = 100 * counts.with_hints / counts.sentences
        note(
            f"hints: {counts.with_hints} of {counts.sentences} sentences ({share:.1f} %) were shown at least one; "
            f"{counts.hints} hints in all, {counts.used} of them taken up word for word"
        )
    if skips.counts:
        note(f"{skips.summary()} (passed through as they are)")
    for place in counts.lost:
        note(place.removeprefix(skips.folder))
    for reason, number in sorted(counts.noted.items()):
        note(f"{number} x {reason}")
    if counts.failed:
        note(
            f"{counts.failed} of {counts.sentences} sentences could not be translated and stand in the source language"
        )
    return PARTLY if counts.failed or counts.lost or skips.counts else OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `python -m rag_mt.translate`."""
    parser = Parser(prog="python -m rag_mt.translate", description=DESCRIPTION)
    add_options(parser)
    return run(translate, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
