"""The workers of the test run do not take each other's cores."""

from __future__ import annotations

import os

import torch


def test_threads_of_all_workers_fit_the_cores() -> None:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    asked = int(os.environ.get("OMP_NUM_THREADS", "0"))
    assert torch.get_num_threads() <= max(1, (os.cpu_count() or 1) // workers, asked if workers == 1 else 0)
