"""Saving and loading, with and without a card."""

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
    """Saves an object and returns the file, ready to be read."""

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
def test_what_was_saved_on_the_card_loads(
    where: Any, device: str, weights_only: bool, saved: Callable[..., io.BytesIO]
) -> None:
    """Where `map_location` says, with the same values."""
    layer = nn.Linear(2, 2).to("hpu")

    state = torch.load(saved(layer.state_dict()), map_location=where, weights_only=weights_only)

    assert state["weight"].device.type == device
    assert torch.equal(state["weight"].cpu(), layer.weight.cpu())


@pytest.mark.parametrize("weights_only", [True, False], ids=["weights only", "pickle"])
def test_what_was_saved_on_the_host_loads_onto_the_card(weights_only: bool, saved: Callable[..., io.BytesIO]) -> None:
    """By `map_location`."""
    layer = nn.Linear(2, 2)

    state = torch.load(saved(layer.state_dict()), map_location="hpu", weights_only=weights_only)

    assert state["weight"].device == torch.device("hpu:0")
    assert torch.equal(state["weight"].cpu(), layer.weight)


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_shared_memory_stays_shared(saved: Callable[..., io.BytesIO]) -> None:
    """Two views of one memory are one memory after loading."""
    x = torch.zeros(3, device="hpu")

    loaded, part = torch.load(saved([x, x[1:]]))
    part.fill_(1)

    assert loaded.tolist() == [0, 1, 1]


@pytest.mark.needs_torch("2.3", "loading that asks a device for its index")
def test_another_index_is_refused(saved: Callable[..., io.BytesIO]) -> None:
    """The machine's second card is another process's."""
    with pytest.raises(RuntimeError, match=r"habana active device 1 != 0"):
        torch.load(saved(torch.ones(1)), map_location="hpu:1")


def test_a_card_that_the_machine_does_not_have_is_refused(saved: Callable[..., io.BytesIO]) -> None:
    """It has two."""
    with pytest.raises((AssertionError, RuntimeError), match=r"Invalid device id|only 2|habana active device"):
        torch.load(saved(torch.ones(1)), map_location="hpu:7")


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_the_older_format_loads(saved: Callable[..., io.BytesIO]) -> None:
    """Files from before the zip format still occur."""
    x = torch.arange(3.0, device="hpu")

    loaded = torch.load(saved(x, _use_new_zipfile_serialization=False))

    assert loaded.device.type == "hpu"
    assert torch.equal(loaded, x)


@pytest.mark.needs_torch("2.1", "files that it maps")
@pytest.mark.parametrize("where", ["cpu", "hpu"])
def test_a_mapped_file_loads(where: str, tmp_path: Path) -> None:
    """`mmap=True` reads large checkpoints without holding them twice."""
    torch.save({"x": torch.arange(3.0, device="hpu")}, tmp_path / "file.pt")

    loaded = torch.load(str(tmp_path / "file.pt"), mmap=True, map_location=where)["x"]

    assert loaded.device.type == where
    assert loaded.tolist() == [0, 1, 2]


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_a_parameter_stays_a_parameter(saved: Callable[..., io.BytesIO]) -> None:
    """With its requires_grad."""
    loaded = torch.load(saved(nn.Parameter(torch.ones(2, device="hpu"))))

    assert isinstance(loaded, nn.Parameter)
    assert loaded.device.type == "hpu"
    assert loaded.requires_grad


def test_a_whole_module_loads(saved: Callable[..., io.BytesIO]) -> None:
    """Pickled with its class."""
    loaded = torch.load(saved(nn.Linear(2, 2).to("hpu")), weights_only=False)

    assert loaded(torch.ones(1, 2, device="hpu")).shape == (1, 2)


def test_a_tensor_can_be_pickled() -> None:
    """As between processes."""
    x = torch.arange(3.0, device="hpu")

    loaded = pickle.loads(pickle.dumps(x))  # noqa: S301 - our own bytes

    assert loaded.device.type == "hpu"
    assert torch.equal(loaded, x)


@pytest.mark.parametrize("strategy", sorted(multiprocessing.get_all_sharing_strategies()))
def test_a_tensor_is_not_sent_to_another_process(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card's memory belongs to one process; torch says so, and nothing in the bridge is known to change it."""
    monkeypatch.setattr(multiprocessing, "_sharing_strategy", strategy)

    with pytest.raises(RuntimeError, match=r"only available on CPU"):
        ForkingPickler.dumps(torch.ones(2, device="hpu"))


def test_a_checkpoint_loads_on_a_machine_without_a_card(tmp_path: Path, output_of: Callable[..., str]) -> None:
    """A process that never activated the simulator maps it to the CPU."""
    torch.save({"x": torch.arange(3.0, device="hpu")}, tmp_path / "file.pt")
    program = """
    import sys, torch
    print(torch.load(sys.argv[1], map_location="cpu")["x"].tolist(), hasattr(torch, "hpu"))
    """

    assert output_of(program, tmp_path / "file.pt") == "[0.0, 1.0, 2.0] False"
