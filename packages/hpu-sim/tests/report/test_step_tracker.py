"""What counts as a training step, in loops of the shapes that programs have."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hpu_sim.report.step_tracker import StepTracker

if TYPE_CHECKING:
    from collections.abc import Iterable


class Optimizer:
    """As much of an optimizer as tells it from others."""

    def __init__(self, *groups: object) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": [group]} for group in groups or (object(),)]


class Log:
    """Notes the step of each event that a program reports."""

    def __init__(self) -> None:
        self.tracker = StepTracker()
        self.events: list[tuple[str, int]] = []

    def event(self, name: str) -> None:
        self.tracker.on_event(sys._getframe(1))
        self.events.append((name, self.tracker.step))

    def step(self, optimizer: Optimizer) -> None:
        self.tracker.on_optimizer_step(optimizer, sys._getframe(1))

    def steps_of(self, name: str) -> list[int]:
        return [number for event, number in self.events if event == name]


def test_a_step_ends_with_the_optimizers() -> None:
    """What a round of the loop does before and after the optimizer step is part of the same step."""
    log, optimizer = Log(), Optimizer()
    log.event("set-up")
    for _ in range(3):
        log.event("copy")
        log.step(optimizer)
        log.event("item")

    assert log.steps_of("set-up") == [1]
    assert log.steps_of("copy") == log.steps_of("item") == [1, 2, 3]
    assert log.tracker.finished == 3


def test_micro_batches_make_one_step() -> None:
    """However many there are, and whether or not an event follows the optimizer step."""
    log, optimizer = Log(), Optimizer()
    for batch in range(6):
        log.event("copy")
        if batch % 3 == 2:
            log.step(optimizer)

    assert log.steps_of("copy") == [1, 1, 1, 2, 2, 2]


def test_steps_are_counted_without_any_event() -> None:
    """As where the data lie on the card and nothing is read."""
    log, optimizer = Log(), Optimizer()
    for _ in range(5):
        log.step(optimizer)

    assert (log.tracker.step, log.tracker.finished) == (5, 5)


def test_optimizers_of_one_round_end_one_step() -> None:
    """Generator and discriminator, each with a forward and a backward pass of its own."""
    log, first, second = Log(), Optimizer(), Optimizer()
    for _ in range(3):
        log.event("discriminate")
        log.step(first)
        log.event("generate")
        log.step(second)

    assert log.steps_of("discriminate") == log.steps_of("generate") == [1, 2, 3]
    assert log.tracker.finished == 3


def test_an_optimizer_that_steps_again_ends_another_step() -> None:
    """As a discriminator does that is trained more often."""
    log, often, rarely = Log(), Optimizer(), Optimizer()
    for _ in range(2):
        for _ in range(3):
            log.step(often)
        log.step(rarely)

    assert log.tracker.finished == 6


def test_groups_stepped_one_by_one_end_one_step() -> None:
    """DeepSpeed gives an optimizer one group of parameters after the other."""
    log, optimizer = Log(), Optimizer("weights", "biases")
    groups = optimizer.param_groups
    for _ in range(3):
        log.event("copy")
        for group in groups:
            optimizer.param_groups = [group]
            log.step(optimizer)

    assert log.steps_of("copy") == [1, 2, 3]
    assert log.tracker.finished == 3


def test_an_optimizer_without_parameters_can_step() -> None:
    """There is nothing to tell its groups apart by."""
    log, optimizer = Log(), Optimizer()
    optimizer.param_groups = []
    for _ in range(2):
        log.step(optimizer)

    assert log.tracker.finished == 2


def test_an_evaluation_belongs_to_the_step_it_follows() -> None:
    """Also where its own loop goes round and round."""
    log, optimizer = Log(), Optimizer()

    def evaluate() -> None:
        for _ in range(3):
            log.event("evaluation")

    for step in range(4):
        log.event("copy")
        log.step(optimizer)
        if step == 1:
            evaluate()

    assert log.steps_of("evaluation") == [2, 2, 2]
    assert log.steps_of("copy") == [1, 2, 3, 4]


def test_an_evaluation_after_an_epoch_belongs_to_its_last_step() -> None:
    """The next epoch's first batch begins the next step."""
    log, optimizer = Log(), Optimizer()
    for _ in range(2):
        for _ in range(2):
            log.event("copy")
            log.step(optimizer)
        log.event("evaluation")

    assert log.steps_of("copy") == [1, 2, 3, 4]
    assert log.steps_of("evaluation") == [2, 4]


def test_a_loop_in_another_function_is_seen() -> None:
    """Frameworks call the step far below the loop, and hooks at other places of it."""
    log, optimizer = Log(), Optimizer()

    def batches() -> Iterable[int]:
        for index in range(3):
            log.event("copy")
            yield index

    def advance() -> None:
        log.event("forward")
        update()
        log.event("hook")

    def update() -> None:
        log.step(optimizer)

    for _ in batches():
        advance()
        log.event("end of batch")

    for name in ("copy", "forward", "hook", "end of batch"):
        assert log.steps_of(name) == [1, 2, 3], name


def test_a_closure_that_the_optimizer_calls_is_in_its_step() -> None:
    """Lightning runs forward and backward in there."""
    log, optimizer = Log(), Optimizer()

    def step() -> None:
        log.event("forward")
        log.step(optimizer)

    for _ in range(3):
        step()

    assert log.steps_of("forward") == [1, 2, 3]


def test_an_event_of_unknown_place_changes_nothing() -> None:
    """No Python may be running where it comes from."""
    log, optimizer = Log(), Optimizer()
    log.step(optimizer)

    assert not log.tracker.on_event(None)
    assert log.tracker.step == 1


def test_another_function_called_from_the_same_place_changes_nothing() -> None:
    """Which of the two comes first in the program is not to be seen."""
    log, optimizer = Log(), Optimizer()

    def step() -> None:
        log.step(optimizer)

    def read() -> None:
        log.event("read")

    for function in (step, read):
        function()

    assert log.steps_of("read") == [1]
