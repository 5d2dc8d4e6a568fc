"""``torch.profiler.ProfilerActivity`` and ``profile`` as the bridge replaced them up to 1.19.

A program that imported the names from torch before the bridge keeps torch's own.
"""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING, Any, Final

import torch.profiler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_VARIABLE: Final = "HABANA_PROFILE"
_StockActivity: Any = torch.profiler.ProfilerActivity
_StockProfile: Any = torch.profiler.profile


class ProfilerActivity(enum.Enum):
    """What a profile can record."""

    CPU = 1
    CUDA = 2
    HPU = 3


class profile(_StockProfile):  # type: ignore[misc] # noqa: N801 - torch's name; torch's class is Any here
    """torch's profile, which records the CPU and the card unless told otherwise.

    Raises:
        RuntimeError: If the card is to be recorded and ``HABANA_PROFILE=0`` forbids it.
    """

    def __init__(  # noqa: PLR0913 - torch's signature
        self,
        *,
        activities: Iterable[Any] | None = None,
        debug_activities: Iterable[Any] | None = None,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        use_cuda: bool | None = None,
    ) -> None:
        del debug_activities
        wanted = {activity.name for activity in activities or (ProfilerActivity.CPU, ProfilerActivity.HPU)}
        self.records_hpu = ProfilerActivity.HPU.name in wanted
        if self.records_hpu and os.environ.get(_VARIABLE) == "0":
            raise RuntimeError(f'Tensorboard callback for HPU hardware profiling disabled. To enable set "{_VARIABLE}"')
        # Where nothing but the card was asked for, the CPU's operators are the card's.
        wanted = wanted - {ProfilerActivity.HPU.name} or {ProfilerActivity.CPU.name}
        super().__init__(
            activities=[getattr(_StockActivity, name) for name in sorted(wanted)],
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=experimental_config,
            use_cuda=use_cuda,
        )


def replace_classes() -> None:
    """Put both names into ``torch.profiler``."""
    setattr(torch.profiler, "ProfilerActivity", ProfilerActivity)  # noqa: B010 - a checker would have it the same class
    setattr(torch.profiler, "profile", profile)  # noqa: B010 - as above
