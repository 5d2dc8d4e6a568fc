"""The "hccl" process group backend, and the variables that a rank needs before it takes a card."""

from __future__ import annotations

import inspect
import ipaddress
import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch._C._distributed_c10d import Backend

_NAME: Final = "hccl"
# The bridge waits for a collective as long as it takes. Gloo, which carries the simulated ones, has to be told an end.
_TIMEOUT: Final = timedelta(minutes=30)
_TORCH_VARIABLES: Final = ("WORLD_SIZE", "RANK", "LOCAL_RANK")
_OPEN_MPI_VARIABLES: Final = {
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "RANK": "OMPI_COMM_WORLD_RANK",
}


def initialize_distributed_hpu(
    world_size: int | None = None, rank: int | None = None, local_rank: int | None = None
) -> tuple[int, int, int]:
    """Set the variables of this rank and choose its card. Takes no card and makes no process group.

    Args:
        world_size: Number of ranks of the job.
        rank: Rank of this process.
        local_rank: Rank of this process on its machine.

    Returns:
        World size, rank and local rank as the environment has them then; (1, -1, -1) where it has none.

    Raises:
        AssertionError: If ``HABANA_VISIBLE_MODULES`` names no module for this local rank.
    """
    if world_size is not None and rank is not None and local_rank is not None:
        os.environ.update(WORLD_SIZE=str(world_size), RANK=str(rank), LOCAL_RANK=str(local_rank))
    elif not all(variable in os.environ for variable in _TORCH_VARIABLES):
        if all(variable in os.environ for variable in _OPEN_MPI_VARIABLES.values()):
            os.environ.update({target: os.environ[source] for target, source in _OPEN_MPI_VARIABLES.items()})
        os.environ.setdefault("MASTER_ADDR", "localhost")
        os.environ.setdefault("MASTER_PORT", "12345")

    size = int(os.environ.get("WORLD_SIZE", "1"))
    global_rank = int(os.environ.get("RANK", "-1"))
    node_rank = int(os.environ.get("LOCAL_RANK", "-1"))
    if "HLS_MODULE_ID" not in os.environ and node_rank != -1 and size != 1:
        os.environ["HLS_MODULE_ID"] = _module_of(node_rank)
    if global_rank != -1:
        os.environ["ID"] = str(global_rank)
    return size, global_rank, node_rank


def _module_of(local_rank: int) -> str:
    visible = os.environ.get("HABANA_VISIBLE_MODULES")
    if visible is None:
        return str(local_rank)
    modules = visible.split(",")
    if local_rank >= len(modules):
        raise AssertionError(
            "There is not enough devices available for training: "
            f"HABANA_VISIBLE_MODULES={visible}, local rank {local_rank}"
        )
    return modules[local_rank]


def _create_process_group(options: Any, pg_options: Any = None) -> Backend:  # noqa: ARG001 - torch passes its own classes
    from torch.distributed import ProcessGroupGloo

    carrier: Any = ProcessGroupGloo
    settings = carrier._Options()  # noqa: SLF001 - torch names no other way to say where gloo listens
    settings._timeout = _TIMEOUT  # noqa: SLF001 - as above
    address = _address_among_machines()
    device = carrier.create_device(hostname=address) if address else carrier.create_default_device()
    settings._devices = [device]  # noqa: SLF001 - as above
    rank, size = options.group_rank, options.group_size
    gloo: Backend = carrier(native().join_hccl_communicator(options.store, rank, size), rank, size, settings)
    return native().make_hccl_backend(gloo)


def _address_among_machines() -> str | None:
    """Return the address of this machine that the one at ``MASTER_ADDR`` sees; None where gloo is to choose itself.

    Gloo takes the address of the host's name, which on many machines is one that no other machine reaches. A program
    for cards does not tell gloo anything, because none of it is there.
    """
    master = os.environ.get("MASTER_ADDR")
    if master is None or "GLOO_SOCKET_IFNAME" in os.environ:
        return None
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(master, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # Sends nothing: the system only looks up which way it would go.
            probe.connect(place)
            address = str(probe.getsockname()[0])
    except OSError:
        return None
    # On the first machine, MASTER_ADDR may be missing or mean itself, which tells nothing about the others.
    return None if ipaddress.ip_address(address.partition("%")[0]).is_loopback else address


def _register_backend() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    register: Callable[..., None] = dist.Backend.register_backend
    if "devices" in inspect.signature(register).parameters:
        register(_NAME, _create_process_group, extended_api=True, devices=["hpu"])
    else:
        # torch 2.0 gives a new backend to CPU and CUDA tensors, whatever it is for.
        register(_NAME, _create_process_group, extended_api=True)
        _give_hpu_tensors(dist.distributed_c10d)


def _give_hpu_tensors(c10d: Any) -> None:
    class BackendConfig(c10d.BackendConfig):  # type: ignore[misc] # torch's class comes in as Any
        def __init__(self, backend: str) -> None:
            super().__init__(backend)
            if str(backend).lower() == _NAME:
                self.device_backend_map = {"hpu": c10d.Backend(backend)}

    stock: Callable[[Any], Any] = c10d._get_pg_device  # noqa: SLF001 - where objects travel, which the bridge replaces too

    def device_of(group: Any = None) -> Any:
        return c10d.torch.device("hpu") if c10d.get_backend(group) == _NAME else stock(group)

    c10d.BackendConfig = BackendConfig
    c10d._get_pg_device = device_of  # noqa: SLF001 - as above


initialize_distributed_hpu()
_register_backend()
