"""The index of the sample corpus: what hints come from until the user has indexed text of their own."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.languages import base_code, language
from rag_mt.base.paths import alone_in, cache_dir, sync
from rag_mt.base.types import Encoder, Origin, Sentence
from retrievers.bm25 import Bm25Settings
from retrievers.calibration import calibrate
from retrievers.index.build import build_index
from retrievers.index.manifest import FORMAT
from retrievers.index.opening import open_index
from retrievers.index.search import Index
from retrievers.registry import confidence_for, maker_for, terms_for
from retrievers.units.unit import UnitMaker

log = logging.getLogger("rag_mt")

SAMPLE_CORPUS = Path(str(files("rag_mt"))) / "sample_corpus"
"""`LANG.txt` per language, one sentence per line, parallel by line number."""

SAMPLE_DROP = 0.9
"""The share of hits that is dropped: far above the paper's quarter, because a few hundred sentences hold little that
fits and a small language model follows whatever it is shown. The best of five shares for both retrievers, without an
adapter, on the German example texts (table in the README)."""

CALIBRATION_LINES = {"sentence": 96, "phrase": 32, "passage": 96}
"""Lines per source language that cut-offs are chosen on: enough hits for a quantile, few enough for a first run."""


def default_index(
    retriever: str, target: str, encoder: Encoder, show: bool = False, corpus: Path = SAMPLE_CORPUS
) -> Path:
    """The folder of the target language's sample index; built at the first call and kept in the cache.

    It is built in `FOLDER.unfinished` by one process while others wait; after a kill the next call goes on from the
    last finished step there: the index itself, then each cut-off.

    It has a cut-off for every other language of the corpus, calibrated on lines of that language as if their own
    translation were not in the index; where a confidence model says what to trust it needs none.
    Raises UserError for a language that the corpus does not have.
    """
    code = base_code(target)
    texts = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in sorted(corpus.glob("*.txt"))}
    if code not in texts:
        have = f"it has {', '.join(sorted(texts))}" if texts else "it is missing"
        raise UserError(
            f"the sample corpus has no {language(target).name} text ({have}): build an index with "
            f"`rag-mt index build DIR FILE --lang {code}` and pass --index DIR, or use --retriever none"
        )
    maker, terms = maker_for(retriever, encoder), terms_for(retriever)
    others = set() if confidence_for(encoder) is not None else texts.keys() - {code}
    folder = cache_dir() / "indexes" / f"{retriever}-{code}-{_key(texts, maker, bool(others), terms)}"
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    if not unfinished.exists() and _opened(folder, maker) is not None:
        return folder
    with alone_in(unfinished, f"the build of the sample index {folder}", wait=True):
        if _opened(folder, maker) is None:  # else another process has made it meanwhile
            if folder.exists():
                log.warning("the sample index %s is damaged: it is made again", folder)
            made = unfinished / "index"
            index = _opened(made, maker)
            if index is None:
                sentences = [Sentence(text, code, Origin(f"{code}.txt", n)) for n, text in enumerate(texts[code], 1)]
                options: dict[str, Any] = {"replace": True, "restart": True, "total": len(sentences), "show": show}
                build_index(made, sentences, maker, retriever=retriever, language=code, terms=terms, **options)
                index = open_index(made, maker.settings)
            missing = sorted(others - index.manifest.thresholds.keys())
            with closing(progress(len(missing), "languages", "choosing cut-offs", show=show and bool(missing))) as bar:
                for source in missing:
                    _calibrate(index, maker, texts[source], texts[code], source)
                    bar.update(1)
            if folder.exists():  # moved, not emptied: who has it open goes on with it
                folder.rename(unfinished / "damaged")
            made.rename(folder)
            sync(folder.parent)
        shutil.rmtree(unfinished, ignore_errors=True)  # who comes right now may have taken it: it tidies up
    return folder


def _opened(folder: Path, maker: UnitMaker) -> Index | None:
    """The index in the folder, or None if it must be made (again)."""
    if not folder.is_dir():
        return None
    try:
        return open_index(folder, maker.settings)
    except UserError:
        return None


def _key(texts: dict[str, list[str]], maker: UnitMaker, calibrated: bool, terms: Bm25Settings | None) -> str:
    corpus = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()
    cut_offs = [SAMPLE_DROP, CALIBRATION_LINES[maker.unit]] if calibrated else []
    searched = [] if terms is None else [asdict(terms)]
    return settings_hash([FORMAT, *cut_offs, corpus, dict(maker.settings), *searched])[:12]


def _calibrate(index: Index, maker: UnitMaker, lines: Sequence[str], targets: Sequence[str], source: str) -> None:
    """Choose the cut-off for one source language on lines spread over the corpus."""
    number = {index.sentence(n).text: n for n in range(index.manifest.sentences)}
    pairs = [(s, number[t]) for s, t in zip(lines, targets, strict=True) if s.strip() and t.strip()]
    pairs = pairs[:: -(-len(pairs) // CALIBRATION_LINES[maker.unit])]
    calibrate(index, maker, [s for s, _ in pairs], source, SAMPLE_DROP, [n for _, n in pairs])
