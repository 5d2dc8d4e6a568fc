"""``torch.profiler.ProfilerActivity`` and ``profile`` as the bridge replaced them up to 1.19.

A program that imports these names from torch before the bridge keeps torch's own.
"""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING, Any, Final

import torch.profiler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_VARIABLE: Final = "HABANA_PROFILE"
_TorchActivity: Any = torch.profiler.ProfilerActivity
_TorchProfile: Any = torch.profiler.profile


class ProfilerActivity(enum.Enum):
    """Activities that a profile can record."""

    CPU = 1
    CUDA = 2
    HPU = 3


class profile(_TorchProfile):  # type: ignore[misc] # noqa: N801 - torch's name; torch's class is Any here
    """torch's profile, which by default records the CPU and the device.

    Raises:
        RuntimeError: ``HABANA_PROFILE=0`` forbids it, whatever it would record.
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
        names = {activity.name for activity in activities or (ProfilerActivity.CPU, ProfilerActivity.HPU)}
        self.records_hpu = ProfilerActivity.HPU.name in names
        if os.environ.get(_VARIABLE) == "0":
            raise RuntimeError(f'Tensorboard callback for HPU hardware profiling disabled. To enable set "{_VARIABLE}"')
        # A profile of hpu alone still needs the CPU's events, which have the operators.
        names = names - {ProfilerActivity.HPU.name} or {ProfilerActivity.CPU.name}
        super().__init__(
            activities=[getattr(_TorchActivity, name) for name in sorted(names)],
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=experimental_config,
            # torch 2.15 removed it.
            **({} if use_cuda is None else {"use_cuda": use_cuda}),
        )


def replace_classes() -> None:
    """Replace both names in ``torch.profiler``."""
    setattr(torch.profiler, "ProfilerActivity", ProfilerActivity)  # noqa: B010 - mypy rejects another class
    setattr(torch.profiler, "profile", profile)  # noqa: B010 - as above
