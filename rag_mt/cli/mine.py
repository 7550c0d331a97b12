"""Find sentence pairs that are translations of each other in two texts: `rag-mt mine A B --src de --tgt en`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_mt.base.cluster import cluster_of
from rag_mt.base.console import OK, PARTLY, add_cluster_options, add_model_options, note, positive, progress
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in, read_json, write_whole
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import NO_LETTERS, Encoder, Sentence, Skips

if TYPE_CHECKING:
    from retrievers.ccpr.confidence import Confidence
    from retrievers.index.search import Index
    from retrievers.mining.margin import Neighbours, Pairs, Threshold
    from retrievers.mining.sides import Choice

DESCRIPTION = """Find pairs of sentences of two texts that are probably translations of each other.

A pair scores by the probability that it is a translation, which a classifier gives it by the vectors, tokens, numbers,
letters and lengths of both sentences, or by how far its cosine stands above the mean cosine of both sentences' nearest
ones (margin). Each sentence is in one pair at most, the best ones first. An interrupted run goes on with the same
command."""
EXAMPLES = (
    "german/ english/ --src de --tgt en -o pairs.tsv",
    "de.txt en.txt --src de --tgt en --check-language -o pairs.tmx.gz",
)
PLAN = "mine.json"
SCORES = ("auto", "classifier", "margin")
STRATEGIES = ("max", "intersection", "forward", "backward")
"""Those of `retrievers.mining.margin`, for the help text, which loads no libraries."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options of the command."""
    add = parser.add_argument
    add("first", metavar="A", help="file, folder, URL or hf: data set of text in the source language")
    add("second", metavar="B", help="the same in the target language")
    add("--src", required=True, metavar="LANG", help="language of A")
    add("--tgt", required=True, metavar="LANG", help="language of B")
    add("-o", "--output", required=True, metavar="FILE", help="pairs.tsv or pairs.tmx (.gz, .xz or .zst may follow)")
    score = "classifier (fitted for the default encoder), margin, or the former where the encoder has one (auto)"
    add("--score", choices=SCORES, default="auto", help=score)
    threshold = "least score of a pair (default: what was tuned for the encoder, else a margin of 1.04); 0 keeps all"
    add("--threshold", type=number, metavar="X", help=threshold)
    add("--encoder", default=DEFAULT_ENCODER, metavar="ID", help="encoder of both sides")
    neighbours = "neighbours that enter a margin (default: as the threshold was tuned)"
    add("--neighbours", type=positive, metavar="K", help=neighbours)
    strategy = "pairs that one side proposes (forward: A), both (intersection) or either, best first"
    add("--strategy", choices=STRATEGIES, default="max", help=strategy)
    add("--check-language", action="store_true", help="drop lines with more words of the other language than their own")
    add("--no-split", action="store_true", help="every line or cell is one sentence already")
    add("--format", default="auto", help="auto, text, tsv, jsonl, tmx, po or xliff")
    add("--column", default="", help="column of A, a TSV (number from 1, or name), or field of a JSONL")
    add("--second-column", default="", metavar="COLUMN", help="column or field of B, likewise")
    add("--work", metavar="DIR", help="keep the vectors here for another run (default: beside FILE, until it is done)")
    add("--restart", action="store_true", help="forget what an interrupted run had finished")
    add("--quiet", action="store_true", help="no progress bar")
    add_cluster_options(parser)
    add_model_options(parser)


def number(text: str) -> float:
    """An argparse type: a number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def mine(options: argparse.Namespace) -> int:
    """`rag-mt mine`: pairs of sentences of two texts that are probably translations of each other.

    A pair scores by the probability that a classifier gives it, or by how far its cosine stands above the mean cosine
    of both sentences' nearest ones; each sentence is in one pair at most, the best ones first. An interrupted run goes
    on where it was.
    """
    from retrievers.mining.candidates import NEAR
    from retrievers.mining.margin import mined, nearest
    from retrievers.mining.output import write_pairs, writer_for
    from retrievers.mining.sides import check_word_lists, choose, survey

    codes = language(options.src).code, language(options.tgt).code
    if base_code(codes[0]) == base_code(codes[1]):
        raise UserError(f"A and B are both {language(codes[0]).name}: give another --src or --tgt")
    output = _output(options)
    writer_for(output)
    if options.check_language:
        check_word_lists(codes)
    classifier = _classifier(options)
    threshold = _threshold(options, codes, classifier)
    skips = Skips()
    others = codes[::-1] if options.check_language else ("", "")
    choices = choose(*(survey(_read(options, n, codes[n], skips), codes[n], others[n]) for n in (0, 1)))
    for name, code, choice in zip((options.first, options.second), codes, choices, strict=True):
        note(f"{name}: {choice.describe()}")
        if not choice.count:
            raise UserError(f"{name} has no line to compare: give a file with {language(code).name} text")
    if skips.counts:
        note(skips.summary())
    work = Path(options.work) if options.work else output.with_name(output.name + ".mining")
    source, target, encoder = _encoded(options, work, codes, choices)
    near = max(NEAR, threshold.neighbours) if classifier else threshold.neighbours
    with progress(len(source) + len(target), "sentences", "comparing", show=not options.quiet) as bar:
        ahead = nearest(source, target, near, bar.update)
        back = nearest(target, source, near, bar.update)
    if classifier:
        pairs = _judged(options, classifier, (source, target), (ahead, back), encoder)
    else:
        pairs = mined(ahead, back, options.strategy)
    pairs = pairs.at_least(threshold.score)
    rows = zip(pairs.scores.tolist(), pairs.sources.tolist(), pairs.targets.tolist(), strict=True)
    write_pairs(output, ((score, source.sentence(a), target.sentence(b)) for score, a, b in rows), *codes)
    if not options.work:
        shutil.rmtree(work)
    note(f"{output}: {len(pairs)} pairs that score at least {threshold.score:.4f} ({threshold.origin})")
    return PARTLY if set(skips.counts) - {NO_LETTERS} else OK


def _output(options: argparse.Namespace) -> Path:
    """The absolute path of the output; raises UserError if it cannot be written or is an input."""
    output = Path(options.output).absolute()
    if output.is_dir():
        raise UserError(f"-o {options.output} is a folder: give a file, such as {output / 'pairs.tsv'}")
    if not os.access(output.parent, os.W_OK):
        raise UserError(
            f"folder {output.parent} of -o {options.output} does not exist or cannot be written: choose another"
        )
    for name in (options.first, options.second):
        if output.exists() and Path(name).exists() and output.samefile(name):
            raise UserError(f"-o {options.output} would overwrite the input {name}: give another file")
    return output


def _classifier(options: argparse.Namespace) -> Confidence | None:
    """The classifier, unless the margin is asked for or `auto` finds none that fits the options.

    Raises UserError if there is none for the encoder, or options of the margin are given with it.
    """
    from retrievers.mining.classifier import known_classifier

    only_margin = options.neighbours or (options.threshold or 0) >= 1  # no probability is that high
    if options.score == "margin" or (options.score == "auto" and only_margin):
        return None
    known = known_classifier(options.encoder)
    if options.score == "auto":
        return known
    if known is None:
        raise UserError(f"there is no classifier for the encoder {options.encoder}: give --score margin")
    if only_margin:
        raise UserError("--neighbours, and a --threshold of 1 or more, are for the margin: give --score margin")
    return known


def _judged(
    options: argparse.Namespace,
    classifier: Confidence,
    sides: tuple[Index, Index],
    neighbours: tuple[Neighbours, Neighbours],
    encoder: Encoder,
) -> Pairs:
    """The pairs with the probabilities that the classifier gives them."""
    from retrievers.mining.candidates import candidates, described
    from retrievers.mining.classifier import chances

    pairs = candidates(*neighbours, options.strategy)
    numbers = pairs.sources.tolist(), pairs.targets.tolist()
    texts = [[side.sentence(n).text for n in own] for side, own in zip(sides, numbers, strict=True)]
    pairs = described(pairs, texts[0], texts[1], encoder, show=not options.quiet)
    return pairs.pairs(chances(pairs, classifier))


def _threshold(options: argparse.Namespace, codes: tuple[str, str], classifier: Confidence | None) -> Threshold:
    """The score and the neighbours that were asked for, or else those that are known for the encoder."""
    from retrievers.mining.margin import Threshold, known_threshold

    if classifier:
        asked = options.threshold is not None
        score = options.threshold if asked else classifier.minimum
        return Threshold(score, 1, f"{'as given' if asked else 'tuned'}; probabilities of the classifier")
    known = known_threshold(options.encoder, *codes)
    if options.threshold is not None:
        return Threshold(options.threshold, options.neighbours or known.neighbours, "as given")
    if options.neighbours not in (None, known.neighbours):
        raise UserError(
            f"the default threshold for {options.encoder} is one for {known.neighbours} neighbours: give --threshold "
            f"with --neighbours {options.neighbours}, or leave it out"
        )
    return known


def _read(options: argparse.Namespace, side: int, code: str, skips: Skips) -> Iterator[Sentence]:
    """The sentences of A (side 0) or B (1)."""
    from rag_mt.formats.reading import read_sentences

    name, column = ((options.first, options.column), (options.second, options.second_column))[side]
    return read_sentences([name], code, format=options.format, column=column, split=not options.no_split, skips=skips)


def _encoded(
    options: argparse.Namespace, work: Path, codes: tuple[str, str], choices: tuple[Choice, Choice]
) -> tuple[Index, Index, Encoder]:
    """The chosen lines of both sides as indexes in the folder `work`, and the encoder.

    Raises UserError if the folder holds those of a run with other settings, unless `--restart` forgets them.
    """
    from rag_mt.formats.reading import input_stamp
    from retrievers.index.far import dtype_for_all, far_writer
    from retrievers.index.manifest import differences
    from retrievers.mining.sides import encoded_side, open_mined

    maker, writer = open_mined(options.encoder, options.device, options.dtype), None
    encoder = maker.encoder
    if cluster := cluster_of(options):
        arguments = (options.encoder, options.device, dtype_for_all(options.dtype, encoder))
        writer = far_writer(cluster, open_mined, arguments, maker.settings)
    plan = {
        "encoder": [encoder.id, encoder.fingerprint],
        "languages": list(codes),
        "files": [input_stamp(name) for name in (options.first, options.second)],
        "columns": [options.column, options.second_column],
        "reading": [options.format, not options.no_split, options.check_language],
    }
    folders = [work / "source", work / "target"]
    with alone_in(work, f"mining into {options.output}"):
        vectors = [path for folder in folders for path in (folder, folder.with_suffix(".building")) if path.exists()]
        if options.restart:
            for path in vectors:
                shutil.rmtree(path)
        elif vectors:
            known = read_json(work / PLAN) if (work / PLAN).is_file() else {"plan": "missing"}
            if different := differences(known, json.loads(json.dumps(plan))):
                raise UserError(
                    f"the vectors in {work} are those of another run ({'; '.join(different)}): "
                    "give --restart to make them anew, or another folder with --work"
                )
        write_whole(work / PLAN, json.dumps(plan, ensure_ascii=False, indent=2))
        sides = []
        for side, (folder, code, choice) in enumerate(zip(folders, codes, choices, strict=True)):
            chosen = choice.of(_read(options, side, code, Skips(shown=0)))
            shown: dict[str, Any] = {"total": choice.count, "show": not options.quiet}
            sides.append(encoded_side(folder, chosen, maker, code, writer=writer, **shown))
        return sides[0], sides[1], encoder
