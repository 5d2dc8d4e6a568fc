"""Process group backend "hccl", and the environment variables of a rank."""

from __future__ import annotations

import inspect
import ipaddress
import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from habana_frameworks.torch.dynamo import collectives
from hpu_sim.common.post_import import after_import
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch._C._distributed_c10d import Backend, Store

_NAME: Final = "hccl"
# The bridge never times out. Gloo, which runs the simulated collectives, requires a timeout.
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
    """Set the environment variables of this rank, including the module of its device.

    It neither acquires a device nor creates a process group.

    Returns:
        World size, rank and local rank from the environment; by default (1, -1, -1).

    Raises:
        AssertionError: If ``HABANA_VISIBLE_MODULES`` has no module for this local rank.
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
    node_local_rank = int(os.environ.get("LOCAL_RANK", "-1"))
    if "HLS_MODULE_ID" not in os.environ and node_local_rank != -1 and size != 1:
        os.environ["HLS_MODULE_ID"] = _select_module(node_local_rank)
    if global_rank != -1:
        os.environ["ID"] = str(global_rank)
    return size, global_rank, node_local_rank


def _select_module(local_rank: int) -> str:
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


def _create_process_group(options: Any, pg_options: Any = None) -> Backend:  # noqa: ARG001 - torch's signature
    from torch.distributed import ProcessGroupGloo

    gloo_class: Any = ProcessGroupGloo
    rank, size = options.group_rank, options.group_size

    def connect(store: Store) -> Backend:
        gloo_options = gloo_class._Options()  # noqa: SLF001 - torch's only way to set gloo's address
        gloo_options._timeout = _TIMEOUT  # noqa: SLF001 - as above
        gloo_options._devices = _gloo_devices(gloo_class)  # noqa: SLF001 - as above
        gloo: Backend = gloo_class(store, rank, size, gloo_options)
        return gloo

    return native().make_hccl_backend(options.store, rank, size, connect)


def _gloo_devices(gloo_class: Any) -> list[Any]:
    """Return what gloo listens on: the interfaces of GLOO_SOCKET_IFNAME, or the address that other machines reach."""
    if interfaces := os.environ.get("GLOO_SOCKET_IFNAME"):
        # torch reads the variable only for a process group that it makes itself.
        return [gloo_class.create_device(interface=interface) for interface in interfaces.split(",")]
    address = _routable_address()
    return [gloo_class.create_device(hostname=address) if address else gloo_class.create_default_device()]


def _routable_address() -> str | None:
    """Return the address from which this machine reaches ``MASTER_ADDR``; None to leave the choice to gloo.

    Gloo uses the address of the host name, which often is not reachable from other machines. A program for cards does
    not configure gloo, because there is none on a card.
    """
    master = os.environ.get("MASTER_ADDR")
    if master is None:
        return None
    try:
        family, kind, protocol, _, sockaddr = socket.getaddrinfo(master, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # Connecting a datagram socket sends nothing. It only looks up the route.
            probe.connect(sockaddr)
            address = str(probe.getsockname()[0])
    except OSError:
        return None
    # On the first machine MASTER_ADDR may be the machine itself, which says nothing about the route to others.
    return None if ipaddress.ip_address(address.partition("%")[0]).is_loopback else address


def _register_backend() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    after_import("torch._dynamo", collectives.disallow_in_graph)
    register: Callable[..., None] = dist.Backend.register_backend
    if "devices" in inspect.signature(register).parameters:
        register(_NAME, _create_process_group, extended_api=True, devices=["hpu"])
    else:
        from habana_frameworks.torch import _torch_2_0

        register(_NAME, _create_process_group, extended_api=True)
        _torch_2_0.use_backend_for_hpu(_NAME, dist.distributed_c10d)


initialize_distributed_hpu()
_register_backend()
