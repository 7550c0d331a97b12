"""An adaptation: a language model is tuned on an index's own language and terms, from its text alone.

1. A part of the index's sentences is held out, in whole blocks; others are drawn to learn from. With many pairs of the
   user's own some of those are held out instead.
2. All of them are translated into the source language by the reverse direction (Sennrich et al. 2016, "Improving neural
   machine translation models with monolingual data"), and pairs that cannot be trusted are dropped.
3. The adapter of the direction goes on with (back-translation, sentence of the index), a part of the examples with the
   hints that the index gives without the sentence's own block, and with general pairs, so as not to forget.
4. A part of what this changed is taken (see `AverageConfig`), and the adapter is kept beside the index if it translates
   the held-out part better than what it began with.

Every part goes on where it was interrupted. The work lies in `INDEX/adapt.SRC` until it is done.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from finetune.adapt.check import Scores, scores
from finetune.adapt.config import AdaptConfig
from finetune.adapt.far import translate_far
from finetune.adapt.hints import OtherBlocks, other_blocks, with_hints, without_hints
from finetune.adapt.pairs import OWN, PairFilter, answered, general_pairs, kept_for_check, own_pairs, replayed
from finetune.adapt.plan import Plan, Speeds, planned
from finetune.adapt.report import place_of, store
from finetune.adapt.request import BATCH, Models, Request
from finetune.adapt.sentences import Chosen, IndexText, Target, chosen
from finetune.adapt.training import averaged, seconds_per_example, steps_for, trained, training_config
from finetune.adapt.work import Work
from finetune.lora.config import Config
from finetune.lora.data import Data
from finetune.lora.examples import Example, Pair, read_examples, write_examples
from rag_mt import __version__
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in, file_sha256, read_json, settings_hash, write_json
from rag_mt.base.types import Origin, Sentence, Skips, Span, Translation
from rag_mt.formats.format import Segment
from rag_mt.formats.parallel import letters_and_digits
from rag_mt.models.adapter_files import adapter_fingerprint
from rag_mt.translation.index_adapters import REPORT
from rag_mt.translation.jobs import Counts, SplitSegment, translate_segments
from rag_mt.translation.journal import Journal
from rag_mt.translation.translator import Translator
from retrievers.dense import IndexRetriever
from retrievers.index.manifest import read_manifest
from retrievers.index.places import only_in_folders

log = logging.getLogger("rag_mt")

MOST_SENTENCES = 100_000
"""Of an index, if no other number is asked for."""
PROBE = 16
"""Sentences that the speeds are measured on."""
WINDOW = 16 * BATCH
"""Sentences that are planned together: many, since none is needed before the last."""
BACK = "back-translation"
TRAIN, HELD_OUT, FACTS = "train.jsonl", "held-out.jsonl", "pairs.json"


@dataclass(frozen=True)
class Outcome:
    """What came of an adaptation: whether the adapter was better, its report, and its folder if it was kept."""

    scores: Scores
    report: dict[str, Any]
    folder: Path | None


def adapt(request: Request, config: AdaptConfig) -> Outcome | None:
    """Do what is asked, as far as an earlier run did not; None if it was finished before.

    Raises UserError for what cannot be used, and where there is an adapter already.
    """
    only_in_folders(request.index)
    adaptation = Adaptation(request, config)
    with alone_in(request.index / f"adapt.{adaptation.models.source}", f"the adaptation of index {request.index}"):
        return adaptation.run()


class Adaptation:
    """The parts of an adaptation in their order."""

    def __init__(self, request: Request, config: AdaptConfig) -> None:
        self.request, self.config = request, config
        self.manifest = read_manifest(request.index)
        self.models = Models(request, self.manifest)
        self.source, self.target = self.models.source, self.models.target
        self.own = own_pairs(request.pairs, self.source, self.target)
        self.general = general_pairs(request.replay, self.source, self.target)
        if not self.general:
            log.info("no general pairs: translations of other text may get worse (--replay FILE gives some)")
        self.command = f"rag-mt adapt INDEX --src {self.source}"
        self._retriever: OtherBlocks | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What tells this adaptation from another one."""
        request, start = self.request, self.models.start
        return {
            "index": settings_hash(self.manifest.as_dict()),
            "src": self.source,
            "minutes": request.minutes,
            "sentences": request.sentences,
            "pairs": [file_sha256(Path(name)) for name in request.pairs],
            "replay": [file_sha256(Path(name)) for name in request.replay],
            "llm": request.llm,
            "adapter": adapter_fingerprint(start) if start else "none",
            BACK: [request.back_llm, request.back_adapter],
            "computing": [request.device, request.dtype, request.engine],
            "config": self.config.as_dict(),
        }

    def run(self) -> Outcome | None:
        """All parts; see `adapt`."""
        place = place_of(self.request.index, self.source)
        work = self.work = Work(self.request.index / f"adapt.{self.source}", self.settings, self.request.restart)
        if (place / REPORT).is_file() and work.plan and read_json(place / REPORT)["key"] == settings_hash(work.plan):
            work.remove()  # stopped after its last act
            return None
        try:
            if place.exists() and not self.request.replace:
                raise UserError(
                    f"{place} is an adapter of this index already: give --replace to tune another one in its place"
                )
            self.skips = Skips(shown=0)
            self.text = IndexText(self.request.index, self.manifest, self.config.text.block)
            everything = chosen(self.text, self.config.text, self.request.sentences or MOST_SENTENCES, self.skips)
            plan = self.plan(everything)
        except UserError:
            if work.plan is None:  # nothing to go on from: leave no trace
                work.remove()
            raise
        self.targets = [*everything.held_out, *everything.train[: plan.train]]
        translations = self.back_translated()
        self.make_examples(plan, translations)
        train, held_out = (read_examples([work.folder / name]) for name in (TRAIN, HELD_OUT))
        facts: dict[str, Any] = read_json(work.folder / FACTS)
        self._place(example.pair for example in held_out)
        training = self.train(plan, Data(train, held_out, facts))
        result = self.check(held_out)
        report = self.report(facts, training, result, len(held_out))
        folder = None
        if result.better:
            folder = store(self.candidate, self.request.index, report, work.folder / "replaced")
        work.remove()
        return Outcome(result, report, folder)

    def plan(self, everything: Chosen) -> Plan:
        """The plan of an earlier run, or one by measured speeds."""
        if (known := self.work.plan) is not None:
            return Plan(**known["plan"])
        request, settings = self.request, self.config.text
        log.info("measuring how long it will take: a minute or so")
        with self.work.timed("measuring"):
            speeds = self.speeds(everything.train[:PROBE])
        held_out, available = len(everything.held_out), len(everything.train)
        plan = planned(speeds, request.minutes, held_out, available, len(self.own), settings)
        log.info("%s", plan.describe(plan.seconds(speeds, len(self.own), settings), request.minutes))
        self.work.write_plan({"plan": asdict(plan), "speeds": asdict(speeds), "begun": time.time_ns()})
        return plan

    def speeds(self, probe: Sequence[Target]) -> Speeds:
        """Each part on a few sentences. Raises UserError where none is translated back."""
        translator = self.models.back()
        sentences = [Sentence(target.text, self.target, target.origin) for target in probe]
        pair_filter = self.pair_filter()
        begin = time.monotonic()
        translations = translator.translate_sentences(sentences)
        pairs = answered(probe, translations, self.source, self.target, Skips(shown=0))
        pair_filter.kept(pairs, Skips(shown=0))
        back = (time.monotonic() - begin) / len(probe)
        if not pairs:
            raise UserError(
                f"{self.request.back_llm} translates none of {len(probe)} sentences back into {self.source}: give "
                "--back-llm another model, or --back-adapter"
            )
        self.targets = list(probe)
        retriever = self.retriever()
        begin = time.monotonic()
        examples = with_hints(pairs, retriever, 0.5, self.config.text.seed)
        hint = (time.monotonic() - begin) / len(pairs)
        config = self.training_config(steps=100)
        train = seconds_per_example(config, examples, self.work.folder / "probe", self.request.device)
        return Speeds(back, hint, train)

    def training_config(self, steps: int) -> Config:
        """The settings of the training."""
        return training_config(self.config, self.request.llm, self.models.start, self.request.dtype, steps)

    def retriever(self) -> OtherBlocks:
        """The index's retriever, opened once, for the present targets."""
        if self._retriever is None:
            opened = cast(IndexRetriever, self.models.retriever())
            self._retriever = other_blocks(opened, self.text, self.targets)
        self._retriever.targets = self.targets
        return self._retriever

    def pair_filter(self) -> PairFilter:
        """What judges pairs."""
        return PairFilter(self.source, self.target, self.config.text, self.models.sentence_encoder())

    def back_translated(self) -> list[Translation] | None:
        """The back-translation of every target; None if examples were made of them already."""
        if (self.work.folder / FACTS).is_file():
            return None
        sentences = [Sentence(target.text, self.target, target.origin) for target in self.targets]
        if self.request.cluster is not None and not self._done(BACK).is_file():
            with self.work.timed(BACK), closing(Journal(self._journal(BACK), {"part": BACK})) as journal:
                translate_far(self.request.cluster, self.models.back_arguments, sentences, journal)
        return self.translated(self.models.back, sentences, BACK)

    @property
    def candidate(self) -> Path:
        """The folder of the adapter that is checked, and kept if it is better."""
        return self.work.folder / "candidate"

    def _done(self, part: str) -> Path:
        return self.work.folder / f"{part}.json"

    def _journal(self, part: str) -> Path:
        return self.work.folder / f"{part}.rag-mt-journal"

    def translated(
        self, opened: Callable[[], Translator], sentences: Sequence[Sentence], part: str
    ) -> list[Translation]:
        """The translations of sentences, which a journal keeps; the model is not opened where all was finished."""
        done = self._done(part)
        if done.is_file():
            return [Translation(s, text, ok=ok) for s, (text, ok) in zip(sentences, read_json(done), strict=True)]
        segments = [SplitSegment(Segment(s.text, s.source), (Span(0, len(s.text)),)) for s in sentences]
        with self.work.timed(part), closing(Journal(self._journal(part), {"part": part})) as journal:
            bar = progress(len(sentences), "sentences", part)
            texts = translate_segments(opened(), segments, Counts(), journal, bar.update, WINDOW)
            translations = [text.sentences[0] for text in texts]
            bar.close()
        write_json(done, [(t.text, t.ok) for t in translations])
        return translations

    def make_examples(self, plan: Plan, translations: list[Translation] | None) -> None:
        """The examples to train on and those to check on, in files; the counts of what became of the pairs last."""
        if translations is None:
            return
        with self.work.timed("hints"):
            pair_filter, skips = self.pair_filter(), self.skips
            pairs = pair_filter.kept(answered(self.targets, translations, self.source, self.target, skips), skips)
            held_out = [pair for pair in pairs if pair.origin.line < plan.held_out]
            train = [pair for pair in pairs if pair.origin.line >= plan.held_out]
            own, of_own = kept_for_check(pair_filter.kept(self.own, skips), self.config.text)
            if of_own:  # then all of the index is learnt from
                held_out = [replace(p, origin=Origin(OWN, n)) for n, p in enumerate(of_own, len(self.targets))]
                train = pairs
                self._place(held_out)
            asked = {letters_and_digits(pair.target) for pair in held_out}
            own, train = self._apart(own, asked), self._apart(train, asked)
            fewest = self.config.text.fewest_pairs // 2
            if len(held_out) < fewest or len(train) < fewest:
                raise UserError(
                    f"{len(train)} pairs to learn from and {len(held_out)} to check on are left ({skips.summary()}): "
                    f"an adaptation needs at least {fewest} of each, so give --back-llm a better model"
                )
            replay = self._apart(replayed(self.general, len(train) + len(own), self.config.text), asked)
            examples = self._with_hints(train, self.config.text.hints, "train")
            write_examples(self.work.folder / HELD_OUT, self._with_hints(held_out, 1.0, "held-out"))
            retriever = self.retriever()
            write_examples(self.work.folder / TRAIN, [*examples, *without_hints([*own, *replay], retriever)])
        hinted = sum(bool(example.hints) for example in examples)
        log.info("%s", skips.summary() or "no pair was dropped")
        facts = {
            "examples": {
                "back-translated pairs": len(train),
                "of them with hints": hinted,
                "pairs of your own": len(own),
                "general pairs": len(replay),
                "held-out pairs": len(held_out),
                "of them your own": len(of_own),
            },
            "dropped": dict(skips.counts.most_common()),
        }
        write_json(self.work.folder / FACTS, facts)

    def _with_hints(self, pairs: Sequence[Pair], share: float, name: str) -> list[Example]:
        path = self.work.folder / f"hints.{name}.rag-mt-journal"
        with closing(Journal(path, {"hints": name})) as journal:
            return with_hints(pairs, self.retriever(), share, self.config.text.seed, journal)

    def _place(self, held_out: Iterable[Pair]) -> None:
        """Count the targets of held-out pairs of the user among the targets, so that their own blocks are left out."""
        own = [pair.target for pair in held_out if pair.origin.line >= len(self.targets)]
        self.targets += self.text.placed(own) if own else []

    def _apart(self, pairs: Sequence[Pair], asked: set[str]) -> list[Pair]:
        """The pairs whose target is not to be translated in the check."""
        apart = []
        for pair in pairs:
            if letters_and_digits(pair.target) in asked:
                self.skips.add(pair.origin, "whose target is held out")
            else:
                apart.append(pair)
        return apart

    def train(self, plan: Plan, data: Data) -> dict[str, Any]:
        """The training, and the adapter that comes of it; the `training.json` of the training."""
        steps = steps_for(len(data.train), plan.passes, self.config.training.batch)
        config, folder = self.training_config(steps), self.work.folder / "adapter"
        with self.work.timed("training"):
            training = trained(config, data, folder, self.request.device, self.command)
        if not self.candidate.is_dir():
            averaged(self.models.start, folder, self.config.average.change, self.candidate)
        return training

    def check(self, held_out: Sequence[Example]) -> Scores:
        """The held-out part from its back-translation, or the user's source, by what there was before and by the new
        adapter."""
        pairs = [example.pair for example in held_out]
        sentences = [Sentence(pair.source, self.source, Origin("held-out", pair.origin.line)) for pair in pairs]

        def texts(part: str, adapter: str) -> list[str]:
            made = self.translated(lambda: self.models.forward(self.retriever(), adapter), sentences, part)
            return [translation.text for translation in made]

        before = texts("check, before", self.request.adapter)
        after = texts("check, after", str(self.candidate))
        return scores(before, after, [pair.target for pair in pairs])

    def report(self, facts: dict[str, Any], training: dict[str, Any], result: Scores, held_out: int) -> dict[str, Any]:
        """JSON-able: what the adapter learnt from, and what came of it."""
        curve = training["curve"]
        return {
            "command": self.command,
            "version": __version__,
            "key": settings_hash(self.work.plan),
            "llm": self.request.llm,
            "source": self.source,
            "target": self.target,
            "held_out": held_out,
            "scores": asdict(result),
            "loss": {"before": curve[0]["dev"], "after": curve[-1]["dev"]},
            **facts,
            "steps": training["steps"],
            "seconds": self.work.seconds,
            "settings": {**self.settings, "plan": (self.work.plan or {}).get("plan")},
        }
