"""Translate text, files or standard input: `rag-mt translate`, or `python -m rag_mt.translate`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from prompts.style import FORMALITIES, read_instructions
from rag_mt.base.console import (
    INTERRUPTED,
    OK,
    PARTLY,
    Parser,
    add_away_option,
    add_engine_option,
    add_model_options,
    add_only_options,
    add_reading_options,
    add_server_options,
    count,
    note,
    only_of,
    positive,
    progress,
    run,
)
from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_LLM, DEFAULT_RETRIEVER, SEARCHING
from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, whole_file
from rag_mt.base.languages import language
from rag_mt.base.quality import least_score
from rag_mt.base.types import Skips, TranslatedText
from rag_mt.cli.hints_shown import finding_lines, picture, score_kind, style_of_stderr
from rag_mt.cli.places import file_for, inputs_of, outputs_for
from rag_mt.formats.format import Format, Side

DESCRIPTION = """Translate text, files or standard input.

An argument that names an existing file is a file, and so is one that looks like a path (one word with a folder or with
a known suffix such as .txt). Everything else is text, one line of output for each argument. Hints do not come from the
language model: they are found in an index of text in the target language (`rag-mt index build`).

An interrupted job with -o goes on with the same command."""
EXAMPLES = (
    '--src de "Guten Morgen"',
    "--src de letter.de.txt -o letter.en.txt",
    "--src de --tgt en --index my-index --show-hints letter.de.txt",
)

if TYPE_CHECKING:
    from rag_mt.translation.jobs import Counts, SplitSegment
    from rag_mt.translation.journal import Journal
    from rag_mt.translation.review import Review
    from rag_mt.translation.translator import Translator


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options of the command; the default models are named where they are loaded."""
    add = parser.add_argument
    input_help = "text or files to translate; - or nothing at all is standard input"
    add("inputs", nargs="*", metavar="TEXT_OR_FILE", help=input_help)
    add(
        "--src",
        required=True,
        metavar="LANG",
        help="language of the input: a code such as de, or a name such as German",
    )
    add("--tgt", default="en", metavar="LANG", help="language of the output")
    retriever_help = f"what finds hints: none, {SEARCHING} (default: that of the index, or none)"
    add("--retriever", metavar="NAME", help=retriever_help)
    add("--index", metavar="DIR", help="index of target-language text (default: the sample index, with --retriever)")
    add_only_options(parser)
    encoder_help = "encoder or phrase model: a name, a hub id or a folder (default: the index's)"
    add("--encoder", metavar="ID", help=encoder_help)
    add_away_option(parser)
    llm_help = "language model: a hub id, a folder, FILE.gguf, embedded:NAME or openai:MODEL@URL"
    add("--llm", default=DEFAULT_LLM, metavar="ID", help=llm_help)
    adapter_help = "PEFT adapter of the LLM, or none (default: the one beside the index, else ours)"
    add("--adapter", metavar="DIR", default=DEFAULT_ADAPTER, help=adapter_help)
    add("--wrapper", default="auto", help="prompt family: auto, alpaca, few-shot, chat, compact or translategemma")
    add_reading_options(parser)
    add("--show-hints", action="store_true", help="show the hints of every sentence and where they came from")
    output_help = "output file or, ending with / or for several inputs, folder; resumable"
    add("-o", "--output", metavar="FILE", help=output_help)
    consensus_help = (
        "show a memory's hints together and each alone, and take the translation that the others and the hints "
        "support; without, once and together, which is quicker"
    )
    add("--consensus", action=argparse.BooleanOptionalAction, default=True, help=consensus_help)
    reuse_help = "take translations that a memory of both languages has of just that sentence as they are"
    add("--reuse-known", action="store_true", help=reuse_help)
    glossary_help = "terms and their translations (CSV, TSV, TBX, TMX) to keep to; may be given several times"
    add("--glossary", action="append", metavar="FILE", help=glossary_help)
    quality_help = "estimate the quality; what is below (good, fair or a number from 0 to 100) is to be reviewed"
    add("--min-quality", metavar="GRADE", help=quality_help)
    add("--review", metavar="FILE", help="write what is to be reviewed, the worst first (TSV)")
    add("--formality", choices=FORMALITIES, default="", help="form of address: more or less formal")
    instruction_help = (
        "text on tone, audience or house rules that goes along with every prompt, for one target language if it is "
        "LANG=FILE; may be given several times"
    )
    add("--instruction", action="append", default=[], metavar="FILE", help=instruction_help)
    add("--title", default="", metavar="TEXT", help="title of the document, which goes along with every prompt")
    context_help = (
        "sentences before one in its document, and half as many after it, that are shown with their translations so "
        "far; each is then translated twice"
    )
    add("--context", type=count, default=0, metavar="N", help=context_help)
    consistent_help = (
        "translate what lacks the terms that the other sentences of its document agree on again, with these terms"
    )
    add("--consistent", action="store_true", help=consistent_help)
    add("--restart", action="store_true", help="forget what an interrupted job had finished")
    add("--batch-size", type=positive, default=16, metavar="N", help="most sentences computed at once")
    add("--max-new-tokens", type=positive, default=256, metavar="N", help="longest answer")
    add_server_options(parser)
    add("--quantization", default="none", help="none, 8bit or 4bit (needs CUDA and bitsandbytes)")
    add("--quiet", action="store_true", help="no progress bar")
    add_model_options(parser)
    add_engine_option(parser)


def translate(options: argparse.Namespace) -> int:
    """Run the command; returns its exit code."""
    source, target = language(options.src), language(options.tgt)
    if source.code == target.code:
        raise UserError(f"source and target are both {source.name}: give another --src or --tgt")
    skips = Skips()
    jobs: list[_FileJob] = []
    unreadable: list[UserError] = []
    with inputs_of(options.inputs, skips) as inputs:
        names = [name for _, name in inputs]
        outputs = outputs_for(options.output, names, options.glossary or ())
        review_file = _review_file(options, names, outputs)
        from rag_mt.formats.registry import format_of
        from rag_mt.translation.jobs import Counts, split_segments
        from rag_mt.translation.review import Review

        side, totals = Side(source.code, options.column, target.code), Counts()
        # Everything is read before a model is loaded: a wrong file costs a second, not a minute.
        for (path, _), output in zip(inputs, outputs, strict=True):
            try:
                form = format_of(path, options.format)
                jobs.append(_FileJob(path, form, output, split_segments(form.segments(path, side, skips), source.code)))
            except UserError as error:
                unreadable.append(error)
        if not jobs:
            raise unreadable[0]
        for reason in unreadable:
            note(f"left out: {str(reason).replace(skips.folder, '')}")
        translator = _translator(options)
        review = Review()
        journals = [_translate_file(translator, job, side, totals, review, options) for job in jobs]
        if review_file:
            review.write(review_file)
            note(f"to be reviewed: {len(review.rows)} of {totals.segments} texts, in {options.review}")
        for journal in filter(None, journals):  # kept until all is done: the same command begins no file anew
            journal.finish()
    code = _closing_lines(totals, skips, options.show_hints)
    if unreadable:
        note(f"{len(unreadable)} of {len(inputs)} files could not be read and are not translated")
    return PARTLY if unreadable else code


def _review_file(options: argparse.Namespace, names: Sequence[str], outputs: Sequence[Path | None]) -> Path | None:
    """Where what is to be reviewed is written; raises UserError for a place of something else."""
    if not options.review:
        return None
    path = file_for("--review", options.review, [*names, *(options.glossary or ())])
    if path in outputs:
        raise UserError(f"--review {options.review} is where the translation is written: give another file")
    return path


@dataclass(frozen=True)
class _FileJob:
    """A file to translate, its format, its output (None: standard output), and its segments."""

    path: Path
    form: Format
    output: Path | None
    segments: list[SplitSegment]


def _translator(options: argparse.Namespace) -> Translator:
    instruction = read_instructions(options.instruction).of(language(options.tgt).code)
    if not options.quiet:
        note("loading models: some seconds; a minute or two where an index or a model folder must be made first")
    from rag_mt.translation.translator import Translator

    names = "index llm encoder adapter engine wrapper device dtype quantization batch_size max_new_tokens"
    more = "llm_timeout llm_concurrency llm_options consensus reuse_known glossary formality title context consistent"
    settings = {name: getattr(options, name) for name in f"{names} {more} index_away".split()}
    settings |= {"min_quality": least_score(options.min_quality), "only": only_of(options)}
    retriever = options.retriever
    if options.show_hints and not (retriever or options.index):  # who wants to see hints has asked for some
        retriever = DEFAULT_RETRIEVER
    return Translator(
        options.src, options.tgt, retriever=retriever, instruction=instruction, **settings, show=not options.quiet
    )


def _translate_file(
    translator: Translator, job: _FileJob, side: Side, totals: Counts, review: Review, options: argparse.Namespace
) -> Journal | None:
    """Translate one file to its output or standard output; returns the journal of an output, which is closed."""
    from rag_mt.formats.opening import compressed
    from rag_mt.translation.jobs import WINDOW, Echo, stream_segments, translate_segments
    from rag_mt.translation.journal import Journal

    output, journal = job.output, None
    total = sum(len(part.spans) for part in job.segments)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {
            **translator.settings,
            "input": file_sha256(job.path),
            "format": [job.form.name, side.column],
            "batching": [options.batch_size, WINDOW],
        }
        journal = Journal(output.with_name(f"{output.name}.rag-mt-journal"), settings, options.restart)
        if journal.resumed:
            note(f"{output}: kept {journal.resumed} of {total} sentences of the interrupted job")
    streaming = output is None and job.form.name == "text" and sys.stdout.isatty()
    streaming = streaming and not options.show_hints and not options.consistent  # what was shown cannot be taken back
    live = Echo(sys.stdout.buffer) if streaming else None
    with closing(progress(total, "sentences", "translating", show=not options.quiet and not live)) as bar:
        if live:
            texts = stream_segments(translator, job.segments, live, totals)
        else:
            texts = translate_segments(translator, job.segments, totals, journal, bar.update)
        texts = review.watch(job.segments, texts)
        if options.show_hints:
            texts = _shown(texts, bar, score_kind(translator.retriever))
        try:
            if output is None:
                job.form.fill(job.path, side, texts, cast(BinaryIO, live or sys.stdout.buffer))
                sys.stdout.buffer.flush()
            else:
                with whole_file(output) as part, part.open("wb") as file, compressed(file, output) as packed:
                    job.form.fill(job.path, side, texts, packed)
        except KeyboardInterrupt:
            if not journal:
                raise
            journal.close()
            note(f"interrupted: {journal.finished} of {total} sentences are kept; the same command goes on there")
            raise SystemExit(INTERRUPTED) from None
    if journal:
        journal.close()
    return journal


def _shown(texts: Iterator[TranslatedText], bar: Any, kind: str) -> Iterator[TranslatedText]:
    """The same texts; the hints of each, whose scores are of a kind, are drawn on stderr as it passes."""
    style = style_of_stderr()
    for text in texts:
        bar.clear()
        for translation in text.sentences:
            note(picture(translation, kind, style))
        for line in finding_lines(text.findings, style):
            note(line)
        yield text


def _closing_lines(counts: Counts, skips: Skips, show_hints: bool) -> int:
    """Say what was done, what not, and return the exit code."""
    if not counts.sentences:
        note("nothing to translate: the input holds no text")
    if show_hints and counts.sentences:
        share = 100 * counts.with_hints / counts.sentences
        note(
            f"hints: {counts.with_hints} of {counts.sentences} sentences ({share:.1f} %) were shown at least one; "
            f"hints in all: {counts.hints}, taken up word for word: {counts.used}"
        )
    if counts.away:
        note(counts.without_hints)
    if counts.terms:
        note(f"terms of the glossary: {counts.kept} of {counts.terms} are translated as it has them")
    if skips.counts:
        note(f"{skips.summary()} (passed through as they are)")
    for line in counts.errors:
        note(line.removeprefix(skips.folder))
    for line in (counts.estimates, counts.findings):
        if line:
            note(line)
    for reason, number in sorted(counts.noted.items()):
        note(f"{number} x {reason}")
    if counts.failed:
        note(
            f"{counts.failed} of {counts.sentences} sentences could not be translated and stand in the source language"
        )
    return PARTLY if counts.failed or counts.wrong or counts.away or skips.counts else OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `python -m rag_mt.translate`."""
    parser = Parser(prog="python -m rag_mt.translate", description=DESCRIPTION, examples=EXAMPLES)
    add_options(parser)
    return run(translate, parser.parse_args(arguments))
