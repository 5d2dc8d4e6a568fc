"""Tests of the detection of training steps in loops of various structures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hpu_sim.common.frames import call_path
from hpu_sim.prediction.steps import StepTracker

if TYPE_CHECKING:
    from collections.abc import Iterable


class Optimizer:
    """Optimizer with parameter groups only."""

    def __init__(self, *groups: object) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": [group]} for group in groups or (object(),)]


class Log:
    """Log of events with their training steps."""

    def __init__(self) -> None:
        self.tracker = StepTracker()
        self.events: list[tuple[str, int]] = []

    def event(self, name: str) -> None:
        self.tracker.on_event(call_path(sys._getframe(1)))
        self.events.append((name, self.tracker.step))

    def step(self, optimizer: Optimizer) -> None:
        self.tracker.on_optimizer_step(optimizer, call_path(sys._getframe(1)))

    def steps_of(self, name: str) -> list[int]:
        return [number for event, number in self.events if event == name]


def test_code_around_the_optimizer_step_belongs_to_its_step() -> None:
    log, optimizer = Log(), Optimizer()
    log.event("set-up")
    for _ in range(3):
        log.event("copy")
        log.step(optimizer)
        log.event("item")

    assert log.steps_of("set-up") == [1]
    assert log.steps_of("copy") == log.steps_of("item") == [1, 2, 3]
    assert log.tracker.finished == 3


def test_micro_batches_share_a_step() -> None:
    """The boundary is found whether or not an event follows the optimizer step."""
    log, optimizer = Log(), Optimizer()
    for batch in range(6):
        log.event("copy")
        if batch % 3 == 2:
            log.step(optimizer)

    assert log.steps_of("copy") == [1, 1, 1, 2, 2, 2]


def test_steps_are_counted_without_events() -> None:
    log, optimizer = Log(), Optimizer()
    for _ in range(5):
        log.step(optimizer)

    assert (log.tracker.step, log.tracker.finished) == (5, 5)


def test_optimizers_that_step_once_each_share_a_step() -> None:
    """Generator and discriminator have a forward and a backward pass each."""
    log, first, second = Log(), Optimizer(), Optimizer()
    for _ in range(3):
        log.event("discriminate")
        log.step(first)
        log.event("generate")
        log.step(second)

    assert log.steps_of("discriminate") == log.steps_of("generate") == [1, 2, 3]
    assert log.tracker.finished == 3


def test_second_step_of_an_optimizer_begins_a_training_step() -> None:
    log, often, rarely = Log(), Optimizer(), Optimizer()
    for _ in range(2):
        for _ in range(3):
            log.step(often)
        log.step(rarely)

    assert log.tracker.finished == 6


def test_parameter_groups_stepped_one_by_one_share_a_step() -> None:
    """DeepSpeed steps an optimizer once per parameter group."""
    log, optimizer = Log(), Optimizer("weights", "biases")
    groups = optimizer.param_groups
    for _ in range(3):
        log.event("copy")
        for group in groups:
            optimizer.param_groups = [group]
            log.step(optimizer)

    assert log.steps_of("copy") == [1, 2, 3]
    assert log.tracker.finished == 3


def test_a_loop_over_optimizers_ends_no_step() -> None:
    """Which optimizers there are is known after the first step."""
    log, optimizers = Log(), (Optimizer(), Optimizer())
    for _ in range(4):
        for optimizer in optimizers:
            log.event("forward")
            log.step(optimizer)

    assert log.steps_of("forward") == [1, 2, 2, 3, 3, 4, 4, 5]


def test_next_model_that_is_trained_begins_a_step() -> None:
    log = Log()
    for _ in range(2):
        optimizer = Optimizer()
        for _ in range(3):
            log.step(optimizer)

    assert log.tracker.finished == 6


def test_optimizer_that_steps_later_shares_a_step() -> None:
    log, generator, discriminator = Log(), Optimizer(), Optimizer()
    for number in range(6):
        log.step(generator)
        if number >= 2:
            log.step(discriminator)

    assert log.tracker.finished == 6


def test_optimizer_without_parameters_steps() -> None:
    log, optimizer = Log(), Optimizer()
    optimizer.param_groups = []
    for _ in range(2):
        log.step(optimizer)

    assert log.tracker.finished == 2


def test_validation_belongs_to_the_preceding_step() -> None:
    """The loop of the validation itself does not begin a step."""
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


def test_validation_after_an_epoch_belongs_to_the_last_step() -> None:
    log, optimizer = Log(), Optimizer()
    for _ in range(2):
        for _ in range(2):
            log.event("copy")
            log.step(optimizer)
        log.event("evaluation")

    assert log.steps_of("copy") == [1, 2, 3, 4]
    assert log.steps_of("evaluation") == [2, 4]


def test_back_edge_in_an_outer_function_is_detected() -> None:
    """Frameworks call the optimizer several frames below the loop, and hooks from elsewhere."""
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


def test_event_without_a_frame_begins_no_step() -> None:
    log, optimizer = Log(), Optimizer()
    log.step(optimizer)

    log.tracker.on_event(())
    assert log.tracker.step == 1


def test_functions_called_from_one_position_begin_no_step() -> None:
    """Their order in the program is unknown."""
    log, optimizer = Log(), Optimizer()

    def step() -> None:
        log.step(optimizer)

    def read() -> None:
        log.event("read")

    for function in (step, read):
        function()

    assert log.steps_of("read") == [1]
