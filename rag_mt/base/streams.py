"""Generators whose return value is needed besides what they yield."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class Returning(Generic[Piece, Result]):
    """Iterates a generator once; `value` is what it returned, from the end of the loop on."""

    value: Result

    def __init__(self, generator: Generator[Piece, None, Result]) -> None:
        self._generator = generator

    def __iter__(self) -> Iterator[Piece]:
        self.value = yield from self._generator
