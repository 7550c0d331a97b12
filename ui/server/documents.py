"""Uploaded files that are translated in the background and given back in their own format."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from rag_mt.base.errors import UserError
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Skips, TranslatedText
from rag_mt.formats.format import Format, Segment, Side
from rag_mt.formats.opening import compressed
from rag_mt.formats.registry import format_of
from rag_mt.text.splitting import split
from rag_mt.translation.jobs import Counts
from ui.server.access import ANONYMOUS
from ui.server.document_records import Document, inherit, write_record
from ui.server.engine import Engine
from ui.server.languages import MOST_CHARS, Detector
from ui.server.limits import BusyError, Limits
from ui.server.own_folders import OwnFolder
from ui.server.tasks import Outcome, OwnedTasks, outcome
from ui.server.uploads import keep, named, shown_name
from ui.server.work import Job, Order

WINDOW = 32
"""Segments of a document that wait for the models at once."""
AT_ONCE = 4
"""Documents that are translated at once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a document is made of: the stored upload, its format, the text that is meant, and how to translate it."""

    path: Path
    form: Format
    side: Side
    order: Order


class Documents(OwnedTasks[Document]):
    """The documents of all owners, and those of the last day of a server that had `folder` before. All methods may be
    called from any thread."""

    def __init__(self, folder: Path, engine: Engine, limits: Limits) -> None:
        super().__init__("document", lambda document: shutil.rmtree(self._folder / document.id, ignore_errors=True))
        self._own = OwnFolder(folder, "documents-", self._inherit)
        self._folder = self._own.path
        self._engine, self._limits = engine, limits
        self._closing = False
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="document")

    def start(self, owner: str, name: str, upload: Path, order: Order, column: str = "", client: str = "") -> Document:
        """Begin to translate an uploaded file, whose user calls it `name`, as `order` says (its text is not used).

        The file is copied and read once before this returns. The oldest finished document, of the owner or of all,
        gives way where there are too many; of clients without a key, who are one owner, each `client` counts for
        itself. Raises LimitError, BusyError and, for a file that cannot be read, UserError.
        """
        choice = order.choice
        shown = shown_name(name)
        document = Document(owner, name=shown, output_name=_output_name(shown, choice.target), client=client)
        place = self._folder / document.id
        with self.lock:
            self._make_room(document)
            self.add(document)
        try:
            self._limits.check_file(upload.stat().st_size)
            place.mkdir()
            path = keep(upload, place, "source", name, self._limits.file_bytes)
            side, skips = Side(choice.source, column, choice.target), Skips(shown=0)
            with named(path, name):
                plan = Plan(path, format_of(path), side, replace(order, background=True))
                total = sum(len(split(s.text, choice.source)) for s in plan.form.segments(path, side, skips))
        except BaseException:
            self.forget(document)
            raise
        document.progress = (0, total)
        document.notes = tuple(skips.remarks)
        if skips.counts:
            document.notes += (f"{skips.summary()} (passed through as they are)",)
        write_record(document, place)
        self._threads.submit(self._run, document, plan)
        return document

    def source_of(self, upload: Path, name: str, column: str, detector: Detector, codes: Sequence[str]) -> str:
        """The first of the languages that the text of an uploaded file reads like, markup and remarks left out.

        Raises LimitError for a file that is too large, UserError if it cannot be read or is in none of them.
        """
        self._limits.check_file(upload.stat().st_size)
        with TemporaryDirectory(prefix="rag-mt-") as folder:
            path = keep(upload, Path(folder), "source", name, self._limits.file_bytes)
            wrong: list[UserError] = []
            for code in codes:
                try:
                    with named(path, name):
                        detected = detector.best(_beginning(path, Side(code, column)))
                except UserError as error:  # the file names its languages, and this is none of them
                    wrong.append(error)
                    continue
                if detected and detected.code == code:
                    return code
        if len(wrong) == len(codes):
            raise wrong[-1]
        raise UserError("the language of the file cannot be told, or is the target's: name the one that it is in")

    def delete_all(self, owner: str) -> None:
        """Delete everything of an owner."""
        for document in self.of(owner):
            self.delete(owner, document.id)

    def cancel(self) -> None:
        """Cancel all documents, since the server stops."""
        self._closing = True
        super().cancel()

    def close(self, timeout: float = 60.0) -> None:
        """Cancel all documents and wait up to `timeout` seconds for their ends; the next server of the folder will know
        of them."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.cancel()
        self.wait(timeout)
        with self.lock:  # which whoever writes the record of a document that has just ended holds
            if self.all():
                self._own.leave()
            else:
                self._own.close()

    def _inherit(self, left: Path, folder: Path) -> None:
        for document in inherit(left, folder):
            self.add(document)

    def _make_room(self, new: Document) -> None:
        all_documents = self.all()
        of_client = [d for d in all_documents if (d.owner, d.client) == (new.owner, new.client)]
        if new.owner == ANONYMOUS and not new.client:
            of_client = []  # many, who cannot be told from each other
        for documents, most in ((of_client, self._limits.documents), (all_documents, self._limits.all_documents)):
            if len(documents) >= most:
                ended = next((d for d in documents if d.ended), None)
                if ended is None:
                    raise BusyError(f"{len(documents)} files are being translated already: wait for one of them", 30)
                self.forget(ended)

    def _run(self, document: Document, plan: Plan) -> None:
        counts = Counts()

        def translate() -> None:
            output = plan.path.with_name(f"result{''.join(plan.path.suffixes)}")
            texts = self._translated(document, plan, counts)
            with whole_file(output) as part, part.open("wb") as file, compressed(file, output) as packed:
                plan.form.fill(plan.path, plan.side, texts, packed)
            document.result = output
            document.notes += _notes(counts)

        end = outcome(document, translate, plan.path, "the file could not be translated")
        for job in document.jobs:
            job.cancel()
        with self.lock:
            self._ended(document, plan, end)

    def _ended(self, document: Document, plan: Plan, end: Outcome | None) -> None:
        """Give a document its last state (None: it has it). One that the end of the server has cancelled is as it was
        for the next one."""
        interrupted = self._closing and document.result is None
        if document.forgotten:
            self.forget(document)
        elif not interrupted:
            plan.path.unlink(missing_ok=True)
        if end:
            document.end(*end)
        if not document.forgotten and not interrupted and document in self.all():
            write_record(document, plan.path.parent)

    def _translated(self, document: Document, plan: Plan, counts: Counts) -> Iterator[TranslatedText]:
        """The translations of the segments in order, of which several wait for the models at once."""
        segments = plan.form.segments(plan.path, plan.side, Skips(shown=0))
        waiting: deque[tuple[Segment, Job]] = deque()
        for segment in segments:
            waiting.append((segment, self._engine.submit(replace(plan.order, text=segment.text))))
            document.jobs = tuple(job for _, job in waiting)
            if len(waiting) >= WINDOW:
                yield self._first(document, counts, waiting)
        while waiting:
            yield self._first(document, counts, waiting)

    def _first(self, document: Document, counts: Counts, waiting: deque[tuple[Segment, Job]]) -> TranslatedText:
        """Wait for the translation of the oldest job, or until the document is not wanted any more."""
        segment, job = waiting[0]
        while not job.future.done():
            document.advance(0)
            wait([job.future], 0.2)
        translated = job.result()
        waiting.popleft()
        place = replace(segment.origin, file=document.name)
        for translation in translated.sentences:
            counts.add(replace(translation, source=replace(translation.source, source=place)))
        document.partial.append((segment.text, translated.text))
        document.advance(len(translated.sentences))
        return translated


def _beginning(path: Path, side: Side) -> str:
    """As much text of a file as is looked at to tell its language."""
    texts: list[str] = []
    for segment in format_of(path).segments(path, side, Skips(shown=0)):
        texts.append(segment.text)
        if sum(map(len, texts)) >= MOST_CHARS:
            break
    return "\n".join(texts)


def _output_name(name: str, target: str) -> str:
    """`report.po` becomes `report.de.po`."""
    path = PurePosixPath(name)
    suffixes = path.suffixes[-2:] if path.suffixes[-1:] and path.suffixes[-1].lower() in (".gz", ".xz", ".zst") else ""
    ending = "".join(suffixes) if suffixes else path.suffix
    return f"{name[: len(name) - len(ending)] if ending else name}.{target}{ending}"


def _notes(counts: Counts) -> tuple[str, ...]:
    """What went wrong, counted; lost placeholders with their lines."""
    notes = [f"{number} x {reason}" for reason, number in sorted(counts.noted.items())]
    notes += counts.lost
    if counts.failed:
        notes.append(f"{counts.failed} of {counts.sentences} sentences could not be translated and stay as they are")
    return tuple(notes)
