"""Patches for torch 2.0, tested with the installed torch."""

from __future__ import annotations

import copy
import io
from collections import OrderedDict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import torch
from habana_frameworks.torch import _torch_2_0 as torch_2_0

if TYPE_CHECKING:
    from collections.abc import Callable


def _saved(obj: Any) -> Any:
    file = io.BytesIO()
    torch_2_0._patch_save(torch.save)(obj, file)
    file.seek(0)
    return torch.load(file)


def test_saving_copies_tensors_to_the_cpu() -> None:
    """This applies to tensors in dicts, lists and tuples. Other values are saved as they are."""
    state = {"model": [torch.ones(2, device="hpu"), torch.zeros(1)], "step": (3, {"lr": 0.1})}

    loaded = _saved(state)

    assert [tensor.device.type for tensor in loaded["model"]] == ["cpu", "cpu"]
    assert loaded["model"][0].tolist() == [1, 1]
    assert loaded["step"] == (3, {"lr": 0.1})
    assert state["model"][0].device.type == "hpu"  # type: ignore[union-attr]


class Moments(NamedTuple):
    """Named tuple with tensors."""

    first: torch.Tensor
    second: tuple[torch.Tensor, ...]


def test_containers_keep_their_types() -> None:
    """Torch's own `tree_map` turns sizes into tuples once its compiler has been imported."""
    moments = Moments(torch.ones(1, device="hpu"), (torch.ones(1, device="hpu"),))
    state = OrderedDict(moments=moments, size=torch.Size([2, 3]), shapes=[torch.Size([1])])

    moved = torch_2_0._map_tensors(torch_2_0._to_cpu, state)

    assert [type(moved), *map(type, moved.values())] == [OrderedDict, Moments, torch.Size, list]
    assert type(moved["shapes"][0]) is torch.Size
    assert {moved["moments"].first.device.type, moved["moments"].second[0].device.type} == {"cpu"}


@pytest.mark.parametrize("place", ["hpu", "hpu:0", torch.device("hpu")])
def test_loading_moves_tensors_to_the_device(place: Any) -> None:
    """Torch loads them on the CPU first."""
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


def _copied(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    result: torch.Tensor = torch_2_0._patch_deepcopy(torch.Tensor.__deepcopy__)(tensor, memo)
    return result


def test_a_deep_copy_is_another_tensor() -> None:
    """It copies the gradient, and the memo makes it unique."""
    tensor = torch.ones(2, device="hpu", requires_grad=True)
    tensor.sum().backward()
    memo: dict[int, Any] = {}

    copied = _copied(tensor, memo)

    assert copied.data_ptr() != tensor.data_ptr()
    assert copied.requires_grad
    assert copied.grad is not None
    assert copied.grad.tolist() == [1, 1]
    assert _copied(tensor, memo) is copied


def test_deep_copies_of_other_tensors_are_torchs() -> None:
    """Torch handles CPU tensors, and raises for tensors in an autograd graph."""
    host = torch.ones(2)

    assert torch.equal(_copied(host, {}), copy.deepcopy(host))
    with pytest.raises(RuntimeError, match="deepcopy"):
        _copied(torch.ones(2, device="hpu", requires_grad=True) * 2, {})


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
