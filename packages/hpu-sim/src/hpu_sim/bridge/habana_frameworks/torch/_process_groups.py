"""Patches of ``torch.distributed``: ``barrier``, and up to 1.19 ``init_process_group`` and ``new_group``.

The latter two have the bridge's own signatures, which lack arguments of torch's. ``new_group`` returns the cached group
of the same ranks unless ``PT_ENABLE_COMM_GROUP_CACHE`` disables that.
"""

from __future__ import annotations

import functools
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch.distributed as dist

from hpu_sim.device.features import features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_CACHE_VARIABLE: Final = "PT_ENABLE_COMM_GROUP_CACHE"
_TIMEOUT: Final = timedelta(seconds=1800)


def patch_process_groups() -> None:
    """Patch the functions of torch that the release's bridge patches."""
    if not dist.is_available():
        return
    dist.barrier = _patch_barrier(dist.barrier)
    if features().after_1_19:
        return
    torch_init_process_group, torch_new_group = dist.init_process_group, dist.new_group
    groups: dict[tuple[Any, ...], Any] = {}

    def init_process_group(  # noqa: PLR0913, PLR0917 - the bridge's signature
        backend: str,
        init_method: str | None = None,
        timeout: timedelta = _TIMEOUT,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        group_name: str = "",
        pg_options: Any = None,
    ) -> None:
        groups.clear()
        torch_init_process_group(
            backend,
            init_method=init_method,
            timeout=timeout,
            world_size=world_size,
            rank=rank,
            store=store,
            group_name=group_name,
            pg_options=pg_options,
        )

    def new_group(
        ranks: Iterable[int] | None = None,
        timeout: timedelta = _TIMEOUT,
        backend: str | None = None,
        pg_options: Any = None,
    ) -> Any:
        members = None if ranks is None else tuple(ranks)
        key = (members, backend)
        if key not in groups or not _is_cache_enabled() or not _is_alive(groups[key]):
            groups[key] = torch_new_group(
                None if members is None else list(members), timeout=timeout, backend=backend, pg_options=pg_options
            )
        return groups[key]

    for function in (init_process_group, new_group):
        setattr(dist, function.__name__, function)


def _is_cache_enabled() -> bool:
    return os.environ.get(_CACHE_VARIABLE, "1").lower() not in {"0", "false"}


def _is_alive(group: Any) -> bool:
    # On a rank that is not a member, torch returns a constant instead of a group.
    return not isinstance(group, dist.ProcessGroup) or group in dist.distributed_c10d._world.pg_map  # noqa: SLF001 - torch's only list of groups


def _patch_barrier(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def barrier(group: Any = None, async_op: bool = False, device_ids: list[int] | None = None, **kwargs: Any) -> Any:
        # Accelerate and others pass the device's number on the machine, with which torch would create a tensor. The
        # bridge ignores it, because it runs barriers on the host. Within a process the device is number 0.
        is_member = group is None or isinstance(group, dist.ProcessGroup)
        if device_ids is not None and is_member and dist.get_backend(group) == "hccl":
            device_ids = [0]
        return original(group, async_op, device_ids, **kwargs)

    return barrier
