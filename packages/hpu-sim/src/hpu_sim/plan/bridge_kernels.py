"""The bridge's fused optimizers and clipping, each of which the host launches as one kernel.

Here they are loops of operators, which a recording must not count as launches of the host.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.prediction.operation_recorder import OperationRecorder


@contextlib.contextmanager
def applied(recorder: OperationRecorder) -> Iterator[None]:
    """Record the operators of fused kernels as parts of one launch."""
    from habana_frameworks.torch.hpex.normalization import FusedClipNorm
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW, FusedLamb, FusedLars, FusedSGD

    methods = [(each, "_step") for each in (FusedAdamW, FusedLamb, FusedLars, FusedSGD)]
    methods.append((FusedClipNorm, "clip_norm"))
    with contextlib.ExitStack() as stack:
        for owner, name in methods:
            original = getattr(owner, name, None)
            if original is not None:
                stack.callback(setattr, owner, name, original)
                setattr(owner, name, _as_one_kernel(original, recorder))
        yield


def _as_one_kernel(original: Callable[..., Any], recorder: OperationRecorder) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        recorder.is_in_kernel = True
        try:
            return original(*args, **kwargs)
        finally:
            recorder.is_in_kernel = False

    return method
