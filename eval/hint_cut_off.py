"""Translation quality against the share of hints that is dropped: where to set a retriever's cut-off.

    python -m eval.hint_cut_off --src de --tgt en [--retriever sentence] [--index DIR] [--tsv FILE] [--limit 100]

Hints are retrieved without any cut-off; then the weakest share of all hits is dropped and the sentences are translated
with what is left. Prints chrF (sacreBLEU) and the share of sentences that are shown a hint, for no hints and for each
share. Sentences are those of `examples/`, which are parallel, or of a TSV file (English first, then the other
language; development data, never a test set).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from rag_mt.console import Parser, positive, run
from rag_mt.corpora.splitting import split
from rag_mt.defaults import DEFAULT_ADAPTER
from rag_mt.errors import UserError
from rag_mt.languages import language
from rag_mt.translator import Translator
from rag_mt.types import Hint, Prompt, Sentence
from retrievers.ccpr.retriever import CcprRetriever
from retrievers.dense import DenseRetriever

SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)
EXAMPLES = Path(__file__).parents[1] / "examples"


def parallel_examples(source: str, target: str) -> list[tuple[str, str]]:
    """Sentence pairs of the example texts that are split into equally many sentences in both languages."""
    pairs: list[tuple[str, str]] = []
    for path in sorted(EXAMPLES.glob(f"*.{source}.txt")):
        texts = [
            (path.parent / f"{path.name.split('.')[0]}.{code}.txt").read_text("utf-8") for code in (source, target)
        ]
        sides = [
            [span.of(text) for span in split(text, code)] for text, code in zip(texts, (source, target), strict=True)
        ]
        if len(sides[0]) == len(sides[1]):
            pairs += zip(*sides, strict=True)
    return pairs


def tsv_pairs(path: str, source: str) -> list[tuple[str, str]]:
    """(source, target) of a file with English in the first column and the other language in the second."""
    rows = [line.split("\t")[:2] for line in Path(path).read_text(encoding="utf-8").splitlines() if "\t" in line]
    return [(a, b) if source == "en" else (b, a) for a, b in rows]


def report(options: argparse.Namespace) -> int:
    """Translate with every share and print the table."""
    source, target = language(options.src).code, language(options.tgt).code
    pairs = tsv_pairs(options.tsv, source) if options.tsv else parallel_examples(source, target)
    if not pairs:
        raise UserError(f"the example texts are not parallel in {source}-{target}: give --tsv FILE")
    pairs = pairs[:: max(1, len(pairs) // options.limit)][: options.limit]
    translator = Translator.from_pretrained(
        src=source,
        tgt=target,
        retriever=options.retriever,
        index=options.index,
        adapter=options.adapter,
        dtype=options.dtype,
    )
    if not isinstance(translator.retriever, DenseRetriever | CcprRetriever):
        raise UserError(f"retriever {options.retriever!r} has no cut-off: choose ccpr, phrases or sentence")
    translator.retriever.cut_off = None
    sentences = [Sentence(text, source) for text, _ in pairs]
    found = translator.retriever.retrieve(sentences)
    scores = np.array([hint.hit.score for hints in found for hint in hints])
    print(f"{source}-{target}, {len(pairs)} sentences, {options.retriever}, {translator.llm.id}, dtype {options.dtype}")
    metric, known = CHRF(), dict[str, str]()
    for name, cut in [("no hints", np.inf), *((f"drop {share:.0%}", np.quantile(scores, share)) for share in SHARES)]:
        kept = [[hint for hint in hints if hint.hit.score >= cut] for hints in found]
        hypotheses = _translations(translator, sentences, kept, known)
        score = metric.corpus_score(hypotheses, [[reference for _, reference in pairs]]).score
        shown = np.mean([bool(k) for k in kept])
        print(f"{name:12s} cut-off {cut:7.4f}  chrF {score:6.2f}  sentences with hints {shown:4.0%}")
    print(metric.get_signature())
    return 0


def _translations(
    translator: Translator, sentences: Sequence[Sentence], hints: Sequence[Sequence[Hint]], known: dict[str, str]
) -> list[str]:
    """The translations with these hints; `known` holds those of prompts that were asked before."""
    prompts = [translator.prompts.build(s, h) for s, h in zip(sentences, hints, strict=True)]
    new: list[tuple[Sentence, Prompt]] = [
        (s, p) for s, p in zip(sentences, prompts, strict=True) if p.text not in known
    ]
    made = translator.complete([s for s, _ in new], [p for _, p in new])
    known.update({p.text: t.text for (_, p), t in zip(new, made, strict=True)})
    return [known[p.text] for p in prompts]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(prog="python -m eval.hint_cut_off", description=__doc__)
    parser.add_argument("--src", required=True)
    parser.add_argument("--tgt", default="en")
    parser.add_argument("--retriever", default="sentence")
    parser.add_argument("--index")
    parser.add_argument("--adapter", default=DEFAULT_ADAPTER, help="PEFT adapter, auto (ours) or none (default: auto)")
    parser.add_argument("--tsv", help="development pairs: English, then the other language")
    parser.add_argument("--limit", type=positive, default=100)
    parser.add_argument("--dtype", default="auto")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
