"""Requests made up from the API's own description: none of them may be answered otherwise than it says."""

from __future__ import annotations

import time
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)


def ask_all(url: str, examples: int, seconds: float) -> int:
    """Ask every operation up to so many made-up requests, fitting and unfitting ones, again and again for so long;
    returns how many there were."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) == 20
    end, asked, seed = time.monotonic() + seconds, 0, 0
    while seed == 0 or time.monotonic() < end:
        for operation in operations:
            for mode in MODES:

                @hypothesis.seed(seed)
                @hypothesis.settings(
                    max_examples=examples,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(hypothesis.HealthCheck),
                    phases=[hypothesis.Phase.generate],
                )
                @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
                def check(case: Any) -> None:
                    nonlocal asked
                    asked += 1
                    if "wait" in (case.query or {}):
                        case.query["wait"] = 0
                    case.call_and_validate(checks=CHECKS, timeout=20)

                try:
                    check()
                except hypothesis.errors.Unsatisfiable:  # an operation without parameters has no unfitting requests
                    continue
        seed += 1
    return asked


def test_made_up_requests(run_server: Any) -> None:
    running = run_server(requests=1_000_000, indexes=1000, all_indexes=1000)
    assert ask_all(running.url, 2, 0) >= 30


@pytest.mark.slow
def test_ten_minutes_of_made_up_requests(run_server: Any) -> None:
    running = run_server(requests=1_000_000_000, indexes=1_000_000, all_indexes=1_000_000)
    assert ask_all(running.url, 50, 600) >= 1000
