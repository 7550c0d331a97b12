"""What can go wrong between a model's name and its weights in memory, each as one sentence for the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rag_mt.base.errors import UserError
from rag_mt.base.files import cache_dir

EMBEDDED = "embedded:e5-small (encoder) and embedded:gemma-3-270m (language model) need no hub"
OFFLINE = (
    "{name!r} is no folder here, is not (wholly) in the hub cache, and the hub cannot be reached or HF_HUB_OFFLINE is "
    "set: connect and unset it once to download the model, copy a model folder here, or use an embedded model: "
    + EMBEDDED
)
MEMORY = (
    "{name} does not fit into memory: use dtype bfloat16, quantization 4bit (language models on CUDA), a smaller model "
    "or batch, or device cpu"
)

REASONS: tuple[tuple[str, str, str], ...] = (
    (
        "GatedRepoError",
        "",
        "{name} is gated: accept its licence at https://huggingface.co/{name}, then run `hf auth login`; " + EMBEDDED,
    ),
    (
        "RepositoryNotFoundError",
        "",
        "the hub has no model {name!r} that you may see: check the spelling, run `hf auth login` if it is private, "
        "or give a model folder; " + EMBEDDED,
    ),
    (
        "HFValidationError",
        "",
        "{name!r} is neither a model folder nor a hub id such as xlm-roberta-base or owner/model nor an embedded: name",
    ),
    ("LocalEntryNotFoundError", "", OFFLINE),
    ("OfflineModeIsEnabled", "", OFFLINE),
    (
        "HfHubHTTPError",
        "",
        "the hub refused {name!r} ({error}): try again later, or use an embedded model: " + EMBEDDED,
    ),
    ("MemoryError", "", MEMORY),
    ("RuntimeError", r"out of memory|not enough memory|can't allocate memory", MEMORY),
    ("ImportError", "", "{name} needs a Python package that is not installed ({error}): pip install it and try again"),
    (
        "SafetensorError",
        "",
        "a weight file of {name} is damaged ({error}): {again}",
    ),
    (
        "ValueError",
        r"custom code|trust_remote_code",
        "{name} brings program code of its own, which is never run here: choose a model whose architecture the "
        "installed transformers knows",
    ),
    (
        "ValueError",
        r"does not recognize this architecture|Unrecognized model|Unrecognized configuration class",
        "the installed transformers cannot load {name} for this job ({error}): check its config.json, choose another "
        "model, or pip install --upgrade transformers",
    ),
    (
        "RuntimeError",
        r"size mismatch|mismatched|shape",
        "the weights of {name} have other sizes than its config.json says: {again}",
    ),
    (
        "JSONDecodeError",
        "",
        "a JSON file of {name} is damaged ({error}): {again}",
    ),
    (
        "OSError",
        "",
        "{name} cannot be read ({error}): check that {path} is readable and the disk not full, or {again}",
    ),
)
"""Exception class, named because the libraries add and move them between releases, a pattern in its message, and the
sentence; the first row counts whose class is the exception's or an ancestor of it."""


@contextmanager
def model_errors(name: str, folder: Path | None = None) -> Iterator[None]:
    """Turn the foreseeable errors of loading or running the model `name`, whose files are in `folder`, into UserErrors,
    cause attached."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        sentence = _sentence(name, error, str(folder or name))
        if sentence is None:
            raise
        raise UserError(sentence) from error


def _sentence(name: str, error: Exception, path: str) -> str | None:
    ancestry = {kind.__name__ for kind in type(error).__mro__}
    for kind, pattern, sentence in REASONS:
        if kind in ancestry and re.search(pattern, str(error), re.IGNORECASE):
            return sentence.format(name=name, error=first_line(error), path=path, again=_again(path))
    return None


def _again(path: str) -> str:
    """What to do about a model whose files are damaged."""
    if Path(path).is_relative_to(cache_dir() / "models"):
        return f"delete {path}, as `rag-mt cache clear models` does, and it is made again at the next use"
    return f"delete {path} and fetch or save the model again"


def first_line(error: Exception, limit: int = 200) -> str:
    """The first line of an error's message, cut to `limit` characters; the error's class if it has no message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0].rstrip(".:") if lines else type(error).__name__
    return line if len(line) <= limit else line[: limit - 3] + "..."
