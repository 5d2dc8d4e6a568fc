"""Reports that the ranks of programs/train.py print."""

import json
from typing import Any

from hpu_testing import CompletedProgram

_STEPS = 12


def reports_of(done: CompletedProgram) -> list[dict[str, Any]]:
    """Return the report of each completed process, by rank."""
    assert done.code == 0, done.output
    assert done.leaked_pids == ()
    reports = [json.loads(line) for line in done.output.splitlines() if line.startswith('{"rank"')]
    return sorted(reports, key=lambda report: int(report["rank"]))


def check_trained(reports: list[dict[str, Any]], ranks: int) -> None:
    """Check that all ranks trained, with the same weights."""
    assert [report["rank"] for report in reports] == list(range(ranks))
    assert [report["steps"] for report in reports] == [_STEPS] * ranks
    assert len({report["weights"] for report in reports}) == 1
