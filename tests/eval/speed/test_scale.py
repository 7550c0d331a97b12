"""The simulation of many parts: what queueing theory knows, what hedged requests are for, and real processes."""

from __future__ import annotations

import numpy as np
import pytest

from eval.speed.scale import Service, main, simulated


def test_one_server_waits_as_theory_says() -> None:
    """M/D/1: the mean wait is load * time / (2 * (1 - load)) (Pollaczek and Khinchine)."""
    for load in (0.3, 0.7):
        seconds = simulated(Service(1), np.array([0.01]), load / 0.01, 60_000)
        assert seconds.mean() - 0.01 == pytest.approx(load * 0.01 / (2 * (1 - load)), rel=0.08)


def test_a_query_waits_for_the_slowest_of_its_parts() -> None:
    times = np.linspace(0.001, 0.1, 1000)
    for parts in (1, 10):
        seconds = simulated(Service(parts, machines=parts), times, 0.01, 4000)  # nobody waits for another query
        for percentile in (50, 90):
            of_each = 100 * (percentile / 100) ** (1 / parts)
            assert np.percentile(seconds, percentile) == pytest.approx(np.percentile(times, of_each), rel=0.05)


def test_parts_of_one_machine_share_its_cores() -> None:
    seconds = simulated(Service(8, machines=1, cores=2), np.array([0.01]), 0.1, 500)
    assert np.allclose(np.sort(seconds)[:400], 0.04)


def test_another_replica_makes_up_for_slow_searches() -> None:
    settings = {"parts": 20, "replicas": 2, "machines": 40, "slow": 0.02, "factor": 50.0}
    times = np.array([0.01])
    alone, hedged = (simulated(Service(**settings, hedge=hedge), times, 5.0, 4000) for hedge in (None, 0.015))
    assert np.percentile(alone, 90) == pytest.approx(0.5, rel=0.1)  # 33 % of queries meet a slow search
    assert np.percentile(hedged, 90) == pytest.approx(0.025, rel=0.1)
    assert hedged.mean() < alone.mean() / 3


def test_the_same_processes_are_simulated_and_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--parts", "2", "--units", "2000", "--queries", "40", "--rate", "20", "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 parts of 2000 vectors, 20 queries a second, load 0.")
    assert [line[:22].strip() for line in lines[2:]] == [
        "search, all cores busy",
        "query, simulated",
        "query, real processes",
    ]
    values = [list(map(float, line[28:].split())) for line in lines[2:]]
    assert all(len(row) == 4 and row == sorted(row) and row[0] > 0 for row in values)


def test_mistakes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    for options, reason in (
        (["--hedge", "95"], "give --replicas 2 or more"),
        (["--check", "--machines", "2"], "leave the other options out"),
        (["--rate", "1e9", "--units", "100", "--queries", "10"], "give a lower --rate"),
    ):
        assert main(options) == 2
        assert reason in capsys.readouterr().err
