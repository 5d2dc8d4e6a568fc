"""Fake `hccl`, which sets the distributed variables on import and on call like bridge 1.19."""

import os


def initialize_distributed_hpu(
    world_size: int | None = None, rank: int | None = None, local_rank: int | None = None
) -> tuple[int, int, int]:
    """Set the variables; `HLS_MODULE_ID` only if it is unset."""
    if world_size is not None and rank is not None and local_rank is not None:
        os.environ.update(WORLD_SIZE=str(world_size), RANK=str(rank), LOCAL_RANK=str(local_rank))
    elif not {"WORLD_SIZE", "RANK", "LOCAL_RANK"} <= set(os.environ):
        os.environ.setdefault("MASTER_ADDR", "localhost")
        os.environ.setdefault("MASTER_PORT", "12345")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    index = int(os.environ.get("RANK", "-1"))
    local = int(os.environ.get("LOCAL_RANK", "-1"))
    if "HLS_MODULE_ID" not in os.environ and local != -1 and world > 1:
        modules = os.environ.get("HABANA_VISIBLE_MODULES")
        os.environ["HLS_MODULE_ID"] = modules.split(",")[local] if modules else str(local)
    if index != -1:
        os.environ["ID"] = str(index)
    return world, index, local


initialize_distributed_hpu()
