"""Flags of the bridge that can change while a program runs."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.device.config import PLACE_ON_CPU_VARIABLE
from hpu_sim.device.features import features
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Iterator

# Flags of published sources, with the defaults of bridge 1.19. Only PT_HPU_PLACE_ON_CPU has an effect here.
_flags: Final[dict[str, Any]] = {
    "PT_COMPILE_ONLY_MODE": False,
    "PT_ENABLE_HABANA_STREAMASYNC": True,
    "PT_HCCL_SLICE_SIZE_MB": 16,
    "PT_HPU_DYNAMIC_MAX_POLICY_ORDER": "2,4,5,3,1",
    "PT_HPU_DYNAMIC_MIN_POLICY_ORDER": "4,5,3,1",
    "PT_HPU_EAGER_ENABLE_GRADIENT_VIEW_LAYOUT_OPT": not features().after_1_19,
    "PT_HPU_EAGER_PIPELINE_ENABLE": True,
    "PT_HPU_EMULATE_DISTRIBUTED": False,
    "PT_HPU_ENABLE_LAZY_COLLECTIVES": False,
    "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": False,
    "PT_HPU_ENABLE_VALID_DATA_RANGE_CHECK": True,
    "PT_HPU_LAZY_ACC_PAR_MODE": 1,
    PLACE_ON_CPU_VARIABLE: os.environ.get(PLACE_ON_CPU_VARIABLE, ""),
    "PT_HPU_POOL_MEM_ACQUIRE_PERC": 100,
    "PT_HPU_RECIPE_CACHE_CONFIG": "",
}


@contextlib.contextmanager
def env_setting(name: str, value: Any) -> Iterator[None]:
    """Return a context manager that sets a flag.

    With ``PT_COMPILE_ONLY_MODE`` a card compiles recipes without running them. Here operators run.

    Raises:
        KeyError: If the bridge has no such flag, which programs use to find out.
    """
    # hpu-doctor verify: compile-only-flag-exists
    before = _flags[name]
    _set(name, value)
    try:
        yield
    finally:
        _set(name, before)


def _set(name: str, value: Any) -> None:
    _flags[name] = value
    if name == PLACE_ON_CPU_VARIABLE:
        native().set_cpu_placement(value != "none")
