"""Saving and loading."""

from __future__ import annotations

import io
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import multiprocessing, nn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def saved() -> Callable[..., io.BytesIO]:
    """Return a function that saves an object and returns the file."""

    def save(what: object, **options: Any) -> io.BytesIO:
        file = io.BytesIO()
        torch.save(what, file, **options)
        file.seek(0)
        return file

    return save


@pytest.mark.parametrize("weights_only", [True, False], ids=["weights only", "pickle"])
@pytest.mark.parametrize(
    ("where", "device"),
    [
        pytest.param(None, "hpu", marks=pytest.mark.needs_torch("2.1", "storages of this device in Python")),
        ("cpu", "cpu"),
        ("hpu", "hpu"),
        (torch.device("hpu"), "hpu"),
        (torch.device("hpu:0"), "hpu"),
        ({"hpu:0": "cpu"}, "cpu"),
        (lambda storage, _: storage, "cpu"),
    ],
    ids=["as saved", "cpu", "hpu", "device", "device with index", "dict", "function"],
)
def test_hpu_tensors_can_be_loaded(
    where: Any, device: str, weights_only: bool, saved: Callable[..., io.BytesIO]
) -> None:
    """`map_location` sets the device, also that of a CPU tensor."""
    layer = nn.Linear(2, 2).to("hpu")

    state = torch.load(saved(layer.state_dict()), map_location=where, weights_only=weights_only)

    assert state["weight"].device.type == device
    assert torch.equal(state["weight"].cpu(), layer.weight.cpu())
    if device == "hpu" and where is not None:
        host = torch.load(saved(torch.ones(2)), map_location=where, weights_only=weights_only)
        assert (host.device, host.tolist()) == (torch.device("hpu:0"), [1, 1])


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_shared_memory_stays_shared(saved: Callable[..., io.BytesIO]) -> None:
    """Two views of one storage share memory after loading."""
    x = torch.zeros(3, device="hpu")

    loaded, part = torch.load(saved([x, x[1:]]))
    part.fill_(1)

    assert loaded.tolist() == [0, 1, 1]


@pytest.mark.parametrize("index", [pytest.param(1, marks=pytest.mark.needs_torch("2.3", "a check of the index")), 7])
def test_another_index_is_refused(index: int, saved: Callable[..., io.BytesIO]) -> None:
    """The machine's second device belongs to another process, and it has no more."""
    with pytest.raises((AssertionError, RuntimeError), match=r"Invalid device id|only 2|habana active device"):
        torch.load(saved(torch.ones(1)), map_location=f"hpu:{index}")


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_the_legacy_format_can_be_loaded(saved: Callable[..., io.BytesIO]) -> None:
    """Files from before the zip format still exist."""
    x = torch.arange(3.0, device="hpu")

    loaded = torch.load(saved(x, _use_new_zipfile_serialization=False))

    assert loaded.device.type == "hpu"
    assert torch.equal(loaded, x)


@pytest.mark.needs_torch("2.1", "files that it maps")
@pytest.mark.parametrize("where", ["cpu", "hpu"])
def test_a_memory_mapped_file_can_be_loaded(where: str, tmp_path: Path) -> None:
    """`mmap=True` reads large checkpoints without holding them twice."""
    torch.save({"x": torch.arange(3.0, device="hpu")}, tmp_path / "file.pt")

    loaded = torch.load(str(tmp_path / "file.pt"), mmap=True, map_location=where)["x"]

    assert loaded.device.type == where
    assert loaded.tolist() == [0, 1, 2]


def test_a_tensor_can_be_pickled() -> None:
    x = nn.Parameter(torch.arange(3.0, device="hpu"))

    loaded = pickle.loads(pickle.dumps(x))  # noqa: S301 - our own bytes

    assert isinstance(loaded, nn.Parameter)
    assert (loaded.device.type, loaded.requires_grad) == ("hpu", True)
    assert torch.equal(loaded, x)


@pytest.mark.parametrize("strategy", sorted(multiprocessing.get_all_sharing_strategies()))
def test_a_tensor_cannot_be_sent_to_another_process(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Device memory belongs to one process. The error is torch's; the bridge is not known to change it."""
    monkeypatch.setattr(multiprocessing, "_sharing_strategy", strategy)

    with pytest.raises(RuntimeError, match=r"only available on CPU"):
        ForkingPickler.dumps(torch.ones(2, device="hpu"))


def test_a_checkpoint_can_be_loaded_without_a_device(tmp_path: Path, output_of: Callable[..., str]) -> None:
    """A process without the simulator maps it to the CPU."""
    torch.save({"x": torch.arange(3.0, device="hpu")}, tmp_path / "file.pt")
    program = """
    import sys, torch
    print(torch.load(sys.argv[1], map_location="cpu")["x"].tolist(), hasattr(torch, "hpu"))
    """

    assert output_of(program, tmp_path / "file.pt") == "[0.0, 1.0, 2.0] False"
