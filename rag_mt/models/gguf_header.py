"""The head of a GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): what a model says of itself.

The reader of the library `gguf` makes objects of every token, which takes tens of seconds for 262,144 of them; this one
steps over them.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rag_mt.base.errors import UserError

Value = str | int | float | bool
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The format's numbers of types and their letters in the module `struct`."""
STRING, ARRAY, INT32, CONTROL = 8, 9, 5, 3
VERSIONS = (2, 3)
LIST = 1024
"""Arrays of more numbers than this belong to the vocabulary and are left out."""
MOST_ENTRIES, MOST_STRINGS, MOST_BYTES = 100_000, 4_000_000, 1 << 24
"""Settings or tensors, strings in arrays, and bytes of a text: far above real models, so that no file takes long."""
DEFAULT_ALIGNMENT = 32
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class GGUFHeader:
    """What stands before the weights of a GGUF file.

    `metadata`: settings by key; arrays of texts, and of more than LIST numbers, are left out. `tensors`: shapes by name
    in numpy's order, so (outputs, inputs) for a linear layer. `control_tokens`: those of the vocabulary that are no
    text (`<bos>`, `<|im_end|>`).
    """

    path: Path
    metadata: dict[str, Value | list[Value]]
    tensors: dict[str, tuple[int, ...]]
    control_tokens: frozenset[str]

    @property
    def architecture(self) -> str:
        """The kind of model (`gemma3`), with which its own keys begin."""
        return str(self.metadata.get("general.architecture", ""))

    def number(self, key: str) -> int | None:
        """The whole number ARCHITECTURE.`key`, such as `block_count`, if the file gives one."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        return value if isinstance(value, int) else None


def read_header(path: Path) -> GGUFHeader:
    """The head of the GGUF file `path`.

    Raises UserError if there is no such file, it is no GGUF file of VERSIONS, or it ends too early; of one that is cut
    within its last tensor only the engine notices.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise UserError(f"{path} is no GGUF file: give one that llama.cpp can read, or a model folder")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(data).header(path)
    except OSError as error:
        raise UserError(f"the GGUF file {path} cannot be read ({error.strerror}): check the path") from error
    except (struct.error, ValueError, OverflowError) as error:
        raise UserError(f"the GGUF file {path} is damaged or not whole ({error}): fetch it again") from error


class _Reader:
    """Goes through the bytes of a file once. Raises struct.error, ValueError or OverflowError at what cannot be."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at, self.strings = data, 4, 0
        self.tokens: list[int] = []  # where they begin
        self.control: list[int] = []  # their numbers

    def header(self, path: Path) -> GGUFHeader:
        version, tensor_count, count = self._numbers("IQQ")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}, not one of {', '.join(map(str, VERSIONS))}")
        if max(tensor_count, count) > MOST_ENTRIES:
            raise ValueError(f"{tensor_count} tensors and {count} settings")
        metadata = {}
        for _ in range(count):
            key, (kind,) = self._text(), self._numbers("I")
            value = self._array(key) if kind == ARRAY else self._value(kind)
            if value is not None:
                metadata[key] = value
        tensors, last = {}, 0
        for _ in range(tensor_count):
            name, (dimensions,) = self._text(), self._numbers("I")
            if not 1 <= dimensions <= 4:
                raise ValueError(f"{dimensions} dimensions")
            *shape, _, offset = self._numbers(f"{dimensions}QIQ")
            tensors[name], last = tuple(reversed(shape)), max(last, offset)
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"an alignment of {alignment}")
        if tensors and -(-self.at // alignment) * alignment + last >= len(self.data):
            raise ValueError("its weights are missing")
        return GGUFHeader(path, metadata, tensors, self._control_tokens())

    def _numbers(self, letters: str) -> tuple[int, ...]:
        letters = f"<{letters}"
        values = struct.unpack_from(letters, self.data, self.at)
        self.at += struct.calcsize(letters)
        return values

    def _text(self) -> str:
        (length,) = self._numbers("Q")
        start, self.at = self.at, self.at + length
        if length > MOST_BYTES or self.at > len(self.data):
            raise ValueError(f"a text of {length} bytes")
        return self.data[start : self.at].decode()

    def _value(self, kind: int) -> Value:
        if kind == STRING:
            return self._text()
        return self._numbers(_letter(kind))[0]

    def _array(self, key: str) -> list[Value] | None:
        """An array's values if it is a short one of numbers; steps over others."""
        kind, count = self._numbers("IQ")
        if kind == STRING:
            self._skip_strings(count, key == "tokenizer.ggml.tokens")
            return None
        letter = _letter(kind)
        end = self.at + count * struct.calcsize(f"<{letter}")
        if end > len(self.data):
            raise ValueError(f"{count} numbers of {key}")
        start, self.at = self.at, end
        if kind == INT32 and key == "tokenizer.ggml.token_type":
            kinds = np.frombuffer(self.data[start:end], "<i4")
            self.control = np.flatnonzero(kinds == CONTROL).tolist()
        return list(struct.unpack_from(f"<{count}{letter}", self.data, start)) if count <= LIST else None

    def _skip_strings(self, count: int, tokens: bool) -> None:
        self.strings += count
        if self.strings > MOST_STRINGS:
            raise ValueError(f"{self.strings} texts")
        length, data, at = _LENGTH.unpack_from, self.data, self.at
        starts = []
        for _ in range(count):
            starts.append(at)
            at += 8 + length(data, at)[0]
        self.at = at
        if at > len(data):
            raise ValueError(f"{count} texts")
        if tokens:
            self.tokens = starts

    def _control_tokens(self) -> frozenset[str]:
        texts = set()
        for number in self.control:
            if number >= len(self.tokens):
                raise ValueError(f"token {number} has no text")
            self.at = self.tokens[number]
            texts.add(self._text())
        return frozenset(texts)


def _letter(kind: int) -> str:
    if kind not in SCALARS:
        raise ValueError(f"a value of type {kind}")
    return SCALARS[kind]
