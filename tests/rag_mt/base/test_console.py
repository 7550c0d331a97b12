"""Running a command: what it leaves behind in the process that called it."""

from __future__ import annotations

import argparse
import gc

from rag_mt.base.console import OK, run


def test_who_calls_a_command_has_the_own_garbage_collection_afterwards() -> None:
    before, during = gc.get_threshold(), []

    def command(_: argparse.Namespace) -> int:
        during.append(gc.get_threshold())
        return OK

    assert run(command, argparse.Namespace()) == OK
    assert gc.get_threshold() == before != during[0]
