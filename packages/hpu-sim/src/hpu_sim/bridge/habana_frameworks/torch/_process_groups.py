"""``torch.distributed.init_process_group`` and ``new_group`` with the bridge's own signatures, which it had up to 1.19.

Both know fewer arguments than torch's: what is not among them is a TypeError. Ranks that already have a group get that
group again, unless ``PT_ENABLE_COMM_GROUP_CACHE`` says no.

And ``torch.distributed.barrier``, which the bridge keeps on the host, whatever device the caller names.
"""

from __future__ import annotations

import functools
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch.distributed as dist

from hpu_sim.features import features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_CACHE_VARIABLE: Final = "PT_ENABLE_COMM_GROUP_CACHE"
_TIMEOUT: Final = timedelta(seconds=1800)


def patch_process_groups() -> None:
    """Put the bridge's functions in the place of torch's, where the release has its own."""
    if not dist.is_available():
        return
    dist.barrier = _barrier(dist.barrier)
    if features().after_1_19:
        return
    stock_init, stock_new = dist.init_process_group, dist.new_group
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
        stock_init(
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
        if key not in groups or not _caches() or not _is_alive(groups[key]):
            groups[key] = stock_new(
                None if members is None else list(members), timeout=timeout, backend=backend, pg_options=pg_options
            )
        return groups[key]

    for function in (init_process_group, new_group):
        setattr(dist, function.__name__, function)


def _caches() -> bool:
    return os.environ.get(_CACHE_VARIABLE, "1").lower() not in {"0", "false"}


def _is_alive(group: Any) -> bool:
    # A rank that is not a member has a constant in the place of a group.
    return not isinstance(group, dist.ProcessGroup) or group in dist.distributed_c10d._world.pg_map  # noqa: SLF001 - torch's only list of groups


def _barrier(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def barrier(group: Any = None, async_op: bool = False, device_ids: list[int] | None = None, **options: Any) -> Any:
        # Accelerate and others name the card by its number on the machine, of which torch would make a tensor. To its
        # process a card is number 0, whichever it has.
        is_member = group is None or isinstance(group, dist.ProcessGroup)
        if device_ids is not None and is_member and dist.get_backend(group) == "hccl":
            device_ids = [0]
        return stock(group, async_op, device_ids, **options)

    return barrier
