"""Patches for torch 2.0, tested with the installed torch."""

from __future__ import annotations

import io
from collections import OrderedDict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import torch
from habana_frameworks.torch import _torch_2_0 as torch_2_0

if TYPE_CHECKING:
    from collections.abc import Callable


class Moments(NamedTuple):
    first: torch.Tensor
    second: tuple[torch.Tensor, ...]


def test_saving_copies_tensors_to_the_cpu() -> None:
    """Containers keep their types: torch's own `tree_map` turns sizes into tuples once its compiler is imported."""
    moments = Moments(torch.ones(1, device="hpu"), (torch.ones(1, device="hpu"),))
    state = OrderedDict(moments=moments, size=torch.Size([2, 3]), shapes=[torch.Size([1])], step=(3, {"lr": 0.1}))
    saved: list[Any] = []

    torch_2_0._patch_save(lambda obj, file: saved.append(obj))(state, "file")

    assert [type(saved[0]), *map(type, saved[0].values())] == [OrderedDict, Moments, torch.Size, list, tuple]
    assert type(saved[0]["shapes"][0]) is torch.Size
    assert {saved[0]["moments"].first.device.type, saved[0]["moments"].second[0].device.type} == {"cpu"}
    assert (saved[0]["step"], moments.first.device.type) == ((3, {"lr": 0.1}), "hpu")


@pytest.mark.parametrize("place", ["hpu", "hpu:0", torch.device("hpu")])
def test_loading_moves_tensors_to_the_device(place: Any) -> None:
    file = io.BytesIO()
    torch.save({"weight": torch.ones(2), "step": 3}, file)
    file.seek(0)

    loaded = torch_2_0._patch_load(torch.load)(file, map_location=place)

    assert loaded["weight"].device == torch.device("hpu:0")
    assert loaded["step"] == 3


@pytest.mark.parametrize("place", [None, "cpu", torch.device("cpu"), {"cpu": "cpu"}, lambda storage, _: storage])
def test_other_map_locations_are_passed_to_torch(place: Any) -> None:
    seen: list[Any] = []

    torch_2_0._patch_load(lambda file, location: seen.append((file, location)))("file", place)

    assert seen == [("file", place)]


def test_a_deep_copy_is_another_tensor_with_its_gradient() -> None:
    """The memo makes it unique. Torch handles CPU tensors, and raises for tensors in an autograd graph."""
    copied_by = torch_2_0._patch_deepcopy(torch.Tensor.__deepcopy__)
    tensor, host = torch.ones(2, device="hpu", requires_grad=True), torch.ones(2)
    tensor.sum().backward()
    memo: dict[int, Any] = {}

    copied = copied_by(tensor, memo)

    assert copied.data_ptr() != tensor.data_ptr()
    assert (copied.requires_grad, copied.grad.tolist()) == (True, [1, 1])
    assert copied_by(tensor, memo) is copied
    assert torch.equal(copied_by(host, {}), host)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copied_by(tensor * 2, {})


def test_hccl_is_used_for_hpu_tensors_only() -> None:
    """Torch 2.0 uses a registered backend for CPU and CUDA tensors."""

    class StockConfig:
        def __init__(self, backend: str) -> None:
            self.device_backend_map = {"cpu": backend, "cuda": backend}

    groups = {"h": "hccl", "g": "gloo"}
    c10d = SimpleNamespace(
        BackendConfig=StockConfig,
        Backend=str,
        _get_pg_device=lambda group: torch.device("cpu"),
        get_backend=lambda group: groups[group],
        torch=torch,
    )

    torch_2_0.use_backend_for_hpu("hccl", c10d)

    assert c10d.BackendConfig("hccl").device_backend_map == {"hpu": "hccl"}
    assert c10d.BackendConfig("gloo").device_backend_map == {"cpu": "gloo", "cuda": "gloo"}
    assert (c10d._get_pg_device("h").type, c10d._get_pg_device("g").type) == ("hpu", "cpu")


@pytest.mark.parametrize(
    ("arguments", "again"),
    [
        ({}, True),
        ({"devices": [0]}, True),
        ({"devices": []}, False),
        ({"enabled": False}, False),
        ({"device_type": "cuda", "devices": []}, False),
    ],
    ids=str,
)
def test_fork_rng_restores_the_device(arguments: dict[str, Any], again: bool) -> None:
    """The device is included by default, as in the bridge."""
    fork_rng = torch_2_0._patch_fork_rng(torch.random.fork_rng)
    torch.manual_seed(3)
    with fork_rng(**arguments):
        first = torch.rand(4, device="hpu")

    assert torch.equal(torch.rand(4, device="hpu"), first) is again


_GROUP: Final = """
import torch, torch.distributed as dist
from habana_frameworks.torch import _torch_2_0 as torch_2_0
barrier = torch_2_0._patch_barrier(lambda group, async_op, device_ids: "torch's own")
for backend in ("hccl", "gloo"):
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    print(barrier(), type(barrier(async_op=True)).__name__)
    dist.destroy_process_group()
"""


def test_a_barrier_needs_no_cpu_backend(output_on: Callable[..., str]) -> None:
    """An hccl group has none. torch handles other groups."""
    card, host = output_on(_GROUP, HPU_SIM_DEVICES="1").splitlines()

    assert card == "None Work"
    assert host == "torch's own str"
