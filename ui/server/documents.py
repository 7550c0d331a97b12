"""Uploaded files that are translated in the background and given back in their own format.

Each has a record beside its files, so that the next start of the server knows of it: a finished document can be
downloaded as before; one that was not finished says that a restart came between.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, whole_file
from rag_mt.base.types import Skips, Span, TranslatedText
from rag_mt.checks.segments import Checker
from rag_mt.formats.format import Format, Segment, Side
from rag_mt.formats.opening import compressed
from rag_mt.formats.registry import COMPRESSED, format_of
from rag_mt.text.splitting import split
from rag_mt.translation.jobs import Counts, compared
from ui.server.engine import Engine
from ui.server.languages import MOST_CHARS, Detector
from ui.server.limits import ANONYMOUS, BusyError, Limits
from ui.server.tasks import Outcome, OwnedTasks, Task
from ui.server.uploads import OwnFolder, keep, named, shown_name
from ui.server.work import Job, Order

WINDOW = 32
"""Segments of a document that wait for the models at once."""
BLOCK = 256
"""Segments that are one text where sentences are translated with regard to others."""
AT_ONCE = 4
"""Documents that are translated at once."""
RECORD = "document.json"
KEPT = 86_400.0
"""Seconds after its upload for which a document outlives the server."""
RECORDED = ("owner", "client", "id", "created", "state", "error", "name", "output_name", "progress", "notes")


@dataclass(eq=False)
class Document(Task):
    """A file that is translated. `partial` grows by (source, translation) pairs in file order.

    `client` is where an owner without a key asks from. `result` is the translated file once the state is done;
    `output_name` is what to call it. `jobs` are those of its segments that wait for the models.
    """

    output_name: str = ""
    client: str = ""
    partial: list[tuple[str, str]] = field(default_factory=list, repr=False)
    result: Path | None = None
    jobs: tuple[Job, ...] = field(default=(), repr=False)

    def cancel(self) -> None:
        """End the document, and at once what the models do for it."""
        super().cancel()
        for job in self.jobs:
            job.cancel()

    def write_record(self, folder: Path) -> None:
        """Write what the next start needs to know into the folder of its files."""
        record = {name: getattr(self, name) for name in RECORDED}
        record["result"] = self.result.name if self.result else ""
        with whole_file(folder / RECORD) as part:
            part.write_text(json.dumps(record), encoding="utf-8")


def inherit(left: Path, folder: Path) -> list[Document]:
    """Move the documents of an ended server, except old ones, from `left` into `folder`; returns them, oldest first."""
    documents = []
    for path in left.glob(f"*/{RECORD}"):
        try:
            record = read_json(path)
            result = record.pop("result")
            document = Document(**{**record, "progress": tuple(record["progress"]), "notes": tuple(record["notes"])})
        except (AttributeError, KeyError, OSError, TypeError, UserError):  # damaged: it goes with the folder
            continue
        if document.id != path.parent.name or time.time() - document.created > KEPT:
            continue
        own_folder = path.parent.rename(folder / document.id)
        if not document.ended:
            reason = f"the server was restarted before {document.name} was translated: send it again"
            document.state, document.error, result = "failed", reason, ""
        for file in own_folder.iterdir():
            if file.name not in (RECORD, result):
                file.unlink()
        document.result = own_folder / result if result else None
        document.write_record(own_folder)
        documents.append(document)
    return sorted(documents, key=lambda document: document.created)


class Documents(OwnedTasks[Document]):
    """The documents of all owners, and those of the last day of a server that had `folder` before. Thread-safe."""

    def __init__(self, folder: Path, engine: Engine, limits: Limits) -> None:
        inherited: list[Document] = []
        self._own = OwnFolder(folder, "documents-", lambda left, new: inherited.extend(inherit(left, new)))
        super().__init__("document", "the file could not be translated", self._own, AT_ONCE, self._settle_document)
        for document in inherited:
            self.add(document)
        self._engine, self._limits = engine, limits
        self._closing = False

    def start(self, owner: str, name: str, upload: Path, order: Order, column: str = "", client: str = "") -> Document:
        """Begin to translate an uploaded file, whose user calls it `name`, as `order` says (its text is not used).

        The file is copied and read once before this returns. The oldest finished document, of the owner or of all,
        gives way where there are too many; of clients without a key, who are one owner, each `client` counts for
        itself. Raises LimitError, BusyError and, for a file that cannot be read, UserError.
        """
        source, target, shown = order.choice.source, order.choice.target, shown_name(name)
        document = Document(owner, name=shown, output_name=_output_name(shown, target), client=client)
        order = replace(order, background=True)
        side, skips = Side(source, column, target), Skips(shown=0)

        def prepare(folder: Path) -> Callable[[], object]:
            self._limits.check_file(upload.stat().st_size)
            path = keep(upload, folder, "source", name, self._limits.file_bytes)
            with named(path, shown):
                form = format_of(path)
                total = sum(len(split(s.text, source)) for s in form.segments(path, side, skips))
            document.progress = (0, total)
            document.notes = tuple(skips.remarks)
            if skips.counts:
                document.notes += (f"{skips.summary()} (passed through as they are)",)
            document.write_record(folder)
            return lambda: self._translate(document, path, form, side, order)

        return self.launch(document, lambda: self._make_room(document), prepare)

    def source_of(self, upload: Path, name: str, column: str, detector: Detector, codes: Sequence[str]) -> str:
        """The first of the languages that the text of an uploaded file, without its markup, reads like. Raises
        LimitError for a file that is too large, UserError if it cannot be read or is in none of them."""
        self._limits.check_file(upload.stat().st_size)
        with TemporaryDirectory(prefix="rag-mt-") as folder:
            path = keep(upload, Path(folder), "source", name, self._limits.file_bytes)
            errors: list[UserError] = []
            for code in codes:
                try:
                    with named(path, shown_name(name)):
                        detected = detector.best(_beginning(path, Side(code, column)))
                except UserError as error:  # the file names its languages, and this is none of them
                    errors.append(error)
                    continue
                if detected and detected.code == code:
                    return code
        if len(errors) == len(codes):
            raise errors[-1]
        raise UserError("the language of the file cannot be told, or is the target's: name the one that it is in")

    def cancel(self) -> None:
        self._closing = True
        super().cancel()

    def close(self, timeout: float = 60.0) -> None:
        """Cancel all documents and wait up to `timeout` seconds; the next server of the folder will know of them."""
        self.stop(timeout)
        with self.lock:  # held by whoever writes the record of a document that has just ended
            if self.all():
                self._own.leave()
            else:
                self._own.close()

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

    def _settle_document(self, document: Document, outcome: Outcome | None) -> None:
        """Delete the upload and write the record, unless the end of the server has cancelled the document."""
        for job in document.jobs:
            job.cancel()
        interrupted = self._closing and document.result is None
        folder = self.folder / document.id
        if document.forgotten:
            self.forget(document)
        elif not interrupted:
            for upload in folder.glob("source*"):
                upload.unlink()
        if outcome:
            document.end(*outcome)
        if not document.forgotten and not interrupted and document in self.all():
            document.write_record(folder)

    def _translate(self, document: Document, path: Path, form: Format, side: Side, order: Order) -> None:
        counts = Counts()
        output = path.with_name(f"result{''.join(path.suffixes)}")
        texts = self._translated(document, form.segments(path, side, Skips(shown=0)), order, counts)
        with (
            named(path, document.name),
            whole_file(output) as part,
            part.open("wb") as file,
            compressed(file, output) as packed,
        ):
            form.fill(path, side, texts, packed)
        document.result = output
        document.notes += _notes(counts)

    def _translated(
        self, document: Document, segments: Iterator[Segment], order: Order, counts: Counts
    ) -> Iterator[TranslatedText]:
        """The translations of the segments in order, of which several wait for the models at once."""
        waiting: deque[_Block] = deque()
        checker = Checker(rules=())
        size = BLOCK if order.context or order.consistent else 1
        while own := list(islice(segments, size)):
            waiting.append(_Block.of(own, order, self._engine))
            document.jobs = tuple(block.job for block in waiting)
            if len(waiting) * size >= WINDOW:
                yield from waiting.popleft().finished(document, checker, counts)
        while waiting:
            yield from waiting.popleft().finished(document, checker, counts)


@dataclass(frozen=True, slots=True)
class _Block:
    """Consecutive segments that are translated as one text, with the spans of their sentences."""

    segments: list[Segment]
    spans: list[list[Span]]
    job: Job

    @classmethod
    def of(cls, segments: list[Segment], order: Order, engine: Engine) -> _Block:
        """The segments, on their way through the engine."""
        spans = [split(segment.text, order.choice.source) for segment in segments]
        begin, in_text = 0, []
        for segment, own in zip(segments, spans, strict=True):
            in_text += [Span(begin + span.start, begin + span.end) for span in own]
            begin += len(segment.text) + 1
        text = "\n".join(segment.text for segment in segments)
        return cls(segments, spans, engine.submit(replace(order, text=text, spans=tuple(in_text))))

    def finished(self, document: Document, checker: Checker, counts: Counts) -> Iterator[TranslatedText]:
        """The translations of the segments, waited for until the document was cancelled."""
        done = 0
        while not self.job.future.done():
            most = max(done, self.job.progress[0])
            document.advance(most - done)
            done = most
            wait([self.job.future], 0.2)
        sentences = iter(self.job.result().sentences)
        document.advance(sum(map(len, self.spans)) - done)
        assert self.job.translator is not None
        for segment, spans in zip(self.segments, self.spans, strict=True):
            made = self.job.translator.joined(segment.text, spans, list(islice(sentences, len(spans))))
            origin = replace(segment.origin, file=document.name)
            translated = compared(made, segment.text, origin, checker, counts)
            document.partial.append((segment.text, translated.text))
            yield translated


def _beginning(path: Path, side: Side) -> str:
    """As much text of a file as the language detector looks at."""
    texts: list[str] = []
    for segment in format_of(path).segments(path, side, Skips(shown=0)):
        texts.append(segment.text)
        if sum(map(len, texts)) >= MOST_CHARS:
            break
    return "\n".join(texts)


def _output_name(name: str, target: str) -> str:
    """`report.po` becomes `report.de.po`."""
    suffixes = PurePosixPath(name).suffixes
    ending = "".join(suffixes[-2:] if suffixes and suffixes[-1].lower() in COMPRESSED else suffixes[-1:])
    return f"{name.removesuffix(ending)}.{target}{ending}"


def _notes(counts: Counts) -> tuple[str, ...]:
    """What went wrong, counted; the first errors with their lines."""
    notes = [f"{number} x {reason}" for reason, number in sorted(counts.noted.items())]
    notes += [*filter(None, (counts.estimates, counts.findings)), *counts.errors]
    if number := counts.away.total():
        notes.append(
            f"{number} of {counts.sentences} sentences were translated without hints, for the index did not answer"
        )
    if counts.failed:
        notes.append(f"{counts.failed} of {counts.sentences} sentences could not be translated and stay as they are")
    return tuple(notes)
