"""Tests of files with device tensors."""

import dataclasses
import io
import subprocess
import sys
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

import hpu_sim
from hpu_core import HPUCheckpointIO, _cpu_pickle

# Torch itself tags a file with the device only where it has storages of it in Python.
_tagged = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.1"), reason="Requires: torch 2.1, which saves storages of this device"
)

Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024 - the untyped kind is found in checkpoints, too.


@dataclasses.dataclass
class Record:
    """A user's dataclass in a checkpoint."""

    weight: torch.Tensor


def _saved(obj: Any) -> bytes:
    buffer = io.BytesIO()
    _cpu_pickle.save(obj, buffer)
    return buffer.getvalue()


def _round_trip(obj: Any) -> Any:
    return torch.load(io.BytesIO(_saved(obj)), weights_only=False)


def _share(*tensors: torch.Tensor) -> bool:
    """Return whether CPU tensors share one storage."""
    return len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool])
def test_values(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)

    loaded = _round_trip(tensor.to("hpu"))

    assert (loaded.device.type, loaded.dtype) == ("cpu", dtype)
    assert torch.equal(loaded, tensor)


@pytest.mark.parametrize(
    "obj",
    [
        {"a": torch.ones(2, device="hpu")},
        [torch.ones(2, device="hpu")],
        (torch.ones(2, device="hpu"),),
        OrderedDict(a=torch.ones(2, device="hpu")),
        {"deep": [({"er": torch.ones(2, device="hpu")},)]},
        Point(torch.ones(2, device="hpu"), 1),
        Record(torch.ones(2, device="hpu")),
        torch.nn.Parameter(torch.ones(2, device="hpu")),
        torch.nn.Linear(2, 2, device="hpu"),
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_tensors_in_containers_are_converted(obj: Any) -> None:
    assert b"hpu:0" not in _saved(obj)


def test_original_stays_on_device() -> None:
    tensor = torch.ones(2, device="hpu")
    checkpoint: dict[str, Any] = {"state_dict": OrderedDict(weight=tensor), "list": [tensor]}
    _saved(checkpoint)

    assert checkpoint["state_dict"]["weight"] is checkpoint["list"][0] is tensor
    assert tensor.device.type == "hpu"


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("make", [torch.clone, torch.nn.Parameter], ids=["tensor", "parameter"])
def test_requires_grad(make: Any, requires_grad: bool) -> None:
    tensor = make(torch.ones(2, device="hpu")).requires_grad_(requires_grad)

    loaded = _round_trip(tensor)

    assert (loaded.requires_grad, type(loaded)) == (requires_grad, type(tensor))


def test_metadata_of_state_dict() -> None:
    """Modules read the version of their state from it."""
    module = torch.nn.BatchNorm1d(2, device="hpu")

    loaded = _round_trip(module.state_dict())

    assert loaded._metadata[""]["version"] == 2


@pytest.mark.parametrize(
    "views",
    [
        lambda base: [base, base[2:5]],
        lambda base: [base[2:5], base],
        lambda base: [base[:3], base[4:]],
        lambda base: [base.view(2, 4), base.view(2, 4).t()],
        lambda base: [base[::2], base[1::2]],
        lambda base: [base[3], base.expand(3, 8)],
    ],
    ids=["part", "part first", "two parts", "transposed", "strided", "scalar and expanded"],
)
def test_views_stay_views(views: Any) -> None:
    """They keep their strides and share one storage."""
    originals = views(torch.arange(8.0, device="hpu"))

    loaded = _round_trip(originals)

    assert _share(*loaded)
    assert [(view.stride(), view.storage_offset()) for view in loaded] == [
        (view.stride(), view.storage_offset()) for view in originals
    ]
    assert all(torch.equal(view, original.cpu()) for view, original in zip(loaded, originals, strict=True))


def test_storage_is_copied_once() -> None:
    base = torch.zeros(8, device="hpu")
    other = torch.zeros(8, device="hpu")
    before = hpu_sim.stats()["d2h_copies"]

    _saved([base, base[2:], base.view(2, 4), other])

    assert hpu_sim.stats()["d2h_copies"] - before == 2


def test_temporary_tensors_keep_separate_storages() -> None:
    """The allocator may reuse the address of a tensor that exists during pickling only."""

    class AsTensor:
        def __init__(self, value: float) -> None:
            self.value = value

        def __reduce__(self) -> tuple[Any, ...]:
            return (torch.clone, (torch.full((4,), self.value, device="hpu"),))

    loaded = _round_trip([AsTensor(value) for value in range(20)])

    assert [float(tensor[0]) for tensor in loaded] == list(range(20))


@pytest.mark.parametrize("elements", [0, 5])
def test_storage_without_data(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In lazy mode a storage may be empty until its graph has run."""
    tensor = torch.arange(6.0, device="hpu").reshape(2, 3)
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "untyped_storage", lambda self: torch.UntypedStorage(4 * elements))
        copy = _cpu_pickle._Pickler(io.BytesIO()).cpu_copy(tensor)

    assert copy.tolist() == [[0, 1, 2], [3, 4, 5]]


class _Scaled(torch.Tensor):
    """Tensor subclass whose `cpu` also moves an attribute."""

    scale: torch.Tensor
    note: str

    def cpu(self, *args: Any, **options: Any) -> "_Scaled":
        moved = super().cpu(*args, **options).as_subclass(_Scaled)
        moved.scale = self.scale.cpu()
        return moved


def test_tensor_subclass() -> None:
    tensor = torch.ones(2, device="hpu").as_subclass(_Scaled)
    tensor.scale = torch.ones(1, device="hpu")
    tensor.note = "by channel"

    loaded = _round_trip(tensor)

    assert (type(loaded), loaded.device.type, loaded.scale.device.type) == (_Scaled, "cpu", "cpu")
    assert loaded.note == "by channel"


def test_file_loads_without_gaudi(tmp_path: Path) -> None:
    """Plain torch loads it without a bridge and without map_location."""
    module = torch.nn.Linear(2, 2, device="hpu")
    HPUCheckpointIO().save_checkpoint({"state_dict": module.state_dict()}, tmp_path / "last.ckpt")
    program = (
        "import sys, torch\n"
        "state = torch.load(sys.argv[1])['state_dict']\n"
        "print(*sorted(str(value.device) for value in state.values()), hasattr(torch, 'hpu'))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "last.ckpt")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PT_HPU_AUTOLOAD": "0"})

    assert done.stdout.split() == ["cpu", "cpu", "False"]


@_tagged
def test_file_of_another_plugin_loads_on_cpu(tmp_path: Path) -> None:
    torch.serialization.save({"weight": torch.ones(2, device="hpu")}, tmp_path / "last.ckpt")

    loaded = HPUCheckpointIO().load_checkpoint(tmp_path / "last.ckpt")

    assert loaded["weight"].device.type == "cpu"
