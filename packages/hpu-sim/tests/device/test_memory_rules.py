"""Rules of the memory pool."""

from __future__ import annotations

from hpu_sim.device.memory_rules import MemoryRules


def test_blocks_are_rounded_up() -> None:
    rules = MemoryRules(alignment=100)

    assert [rules.in_use(size) for size in (200, 201, 300)] == [200, 300, 300]


def test_small_blocks_come_from_what_is_in_use_from_the_start() -> None:
    rules = MemoryRules(alignment=100, small_slab=1000, workspace=50)

    assert rules.in_use(199) == 0
    assert rules.reserved == 1050
