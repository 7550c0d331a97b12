"""Back-translation that the machines of a cluster share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache

from finetune.adapt.request import BATCH, open_translator
from rag_mt.base.cluster import Cluster
from rag_mt.base.console import progress
from rag_mt.base.types import Sentence, Translation
from rag_mt.translation.journal import Journal
from rag_mt.translation.translator import Translator


def translate_far(
    cluster: Cluster, arguments: tuple[str, ...], sentences: Sequence[Sentence], journal: Journal
) -> None:
    """Add what is missing in the journal of the translations of the sentences; `arguments` are those of
    `open_translator`."""
    sent = cluster.everywhere(*arguments)
    missing = [number for number in range(len(sentences)) if number not in journal.earlier]
    parts = [missing[begin : begin + BATCH] for begin in range(0, len(missing), BATCH)]
    jobs = ((part, (sent, [sentences[number] for number in part])) for part in parts)
    if not missing:
        return
    bar = progress(len(missing), "sentences", "translating in the cluster")
    with closing(bar), closing(cluster.spread(translations_of, jobs)) as results:
        for numbers, translations in results:
            journal.add(numbers, translations)
            bar.update(len(numbers))


def translations_of(arguments: tuple[str, ...], sentences: Sequence[Sentence]) -> list[Translation]:
    """The translations of some sentences."""
    return opened(*arguments).translate_sentences(list(sentences))


@lru_cache(maxsize=1)
def opened(*arguments: str) -> Translator:
    """The translator, which stays for the next task."""
    return open_translator(*arguments)
