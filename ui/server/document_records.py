"""What a translated document leaves on disk, so that the next start of the server knows of it: its record beside its
files. A finished one can be downloaded as before; one that was not finished says that a restart came between."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json
from rag_mt.base.paths import whole_file
from ui.server.tasks import Task
from ui.server.work import Job

RECORD = "document.json"
KEPT = 86_400.0
"""Seconds after its upload for which a document outlives the server."""
RECORDED = ("owner", "client", "id", "created", "state", "error", "name", "output_name")


@dataclass(eq=False)
class Document(Task):
    """A file that is translated. `partial` grows by (source, translation) pairs in file order.

    `client` is where an owner that is nobody (without a key) asks from. `result` is the translated file once the state
    is done; `output_name` is what to call it. `jobs` are those of its segments that wait for the models.
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


def write_record(document: Document, folder: Path) -> None:
    """Write what the next start needs to know of a document whose files are in `folder`."""
    record = {name: getattr(document, name) for name in RECORDED}
    record |= {"progress": document.progress, "notes": document.notes}
    record["result"] = document.result.name if document.result else ""
    with whole_file(folder / RECORD) as part:
        part.write_text(json.dumps(record), encoding="utf-8")


def inherit(left: Path, folder: Path) -> list[Document]:
    """Move the documents of a server that has ended from its folder `left` into `folder`, those that are too old left
    out; returns them, the oldest first."""
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
        place = path.parent.rename(folder / path.parent.name)
        if not document.ended:
            reason = f"the server was restarted before {document.name} was translated: send it again"
            document.state, document.error, result = "failed", reason, ""
        for file in place.iterdir():
            if file.name not in (RECORD, result):
                file.unlink()
        document.result = place / result if result else None
        write_record(document, place)
        documents.append(document)
    return sorted(documents, key=lambda document: document.created)
