"""What is said of a predicted step, in a plan and in a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpu_sim.common.document import Table
from hpu_sim.prediction import view
from hpu_sim.prediction.recording import Collective, StepRecording
from hpu_sim.prediction.step import summarize

from .predicting import clock_of, make_operation, random_operations

if TYPE_CHECKING:
    from hpu_sim.prediction.recording import Mode, Operation


@settings(max_examples=50, deadline=None)
@given(
    operations=random_operations(),
    sizes=st.lists(st.integers(1, 1 << 30), max_size=3),
    mode=st.sampled_from(["eager", "lazy", "compile"]),
)
def test_each_column_follows_from_the_others(operations: list[Operation], sizes: list[int], mode: Mode) -> None:
    """Costs, bounds and collectives add up to the step that was recorded and to its time."""
    calls = [Collective("allreduce", "backward", size, size, tuple(range(8)), is_async=True, after=0) for size in sizes]
    clock = clock_of(StepRecording(operations, calls), mode=mode)

    step = summarize(clock, lambda _, module: module)

    work = [each for each in operations if not each.host_sync]
    assert step.seconds == clock.timeline.seconds
    assert step.fast_seconds < step.seconds < step.slow_seconds
    assert sum(each.seconds for each in step.costs) == pytest.approx(step.seconds)
    assert sum(step.bounds.values()) == pytest.approx(1)
    assert step.flops == sum(each.flops for each in operations)
    # In a graph, a kernel of one module may have the only operators of another one, which then costs nothing.
    if mode == "eager":
        assert sum(each.operators for each in step.costs) >= len(work)
    assert sum(each.bytes for each in step.collectives) == sum(sizes)
    assert sum(each.count for each in step.collectives) == len(sizes)


def test_shares_of_the_table_of_costs_add_up_to_the_step() -> None:
    step = StepRecording([make_operation(reads=(0,), writes=(1,), module=name) for name in "abcd"])
    found = summarize(clock_of(step), lambda _, module: module)

    (table,) = (each for each in view.tables(found) if isinstance(each, Table))

    shares = [int(row[table.columns.index("time")].rpartition(", ")[2].rstrip("%")) for row in table.rows]
    assert sum(shares) == pytest.approx(100, abs=2)
    # A title, the columns, and the first three rows in a terminal.
    assert (len(table.rows), len(table.lines())) == (4, 5)
    assert "line" not in table.columns
