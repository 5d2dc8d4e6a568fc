"""Device memory is charged to the byte, and ends where the card's memory ends."""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING, Final

import pytest
import torch

import hpu_sim

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def memory() -> Callable[[], tuple[int, int]]:
    """Bytes in use and their peak, both counted from where the test begins."""
    gc.collect()
    hpu_sim.reset_stats()
    start = hpu_sim.stats()["allocated_bytes"]

    def now() -> tuple[int, int]:
        stats = hpu_sim.stats()
        return stats["allocated_bytes"] - start, stats["peak_bytes"] - start

    return now


# What a program keeps: the bytes in use then, and at their peak.
_CHARGES: Final[dict[str, tuple[Callable[[], object], tuple[int, int]]]] = {
    "a tensor": (lambda: torch.empty(1000, device="hpu"), (4000, 4000)),
    "nothing": (lambda: torch.empty(1000, device="hpu").numel(), (0, 4000)),
    "a result": (lambda: torch.ones(1000, device="hpu") + 1, (4000, 8000)),
    "a view": (lambda: torch.ones(1000, device="hpu")[10:], (4000, 4000)),
    "a result in place": (lambda: torch.empty(1000, device="hpu").fill_(1).add_(1), (4000, 4000)),
    "a copy from the host": (lambda: torch.ones(1000).to("hpu"), (4000, 4000)),
    "a copy to the host": (lambda: torch.empty(1000, device="hpu").cpu(), (0, 4000)),
    "an output that has grown": (
        lambda: torch.add(torch.ones(1000, device="hpu"), 1, out=torch.empty(0, device="hpu")),
        (4000, 8000),
    ),
    # Its content is copied from the old memory to the new.
    "a tensor that has grown": (lambda: torch.empty(1000, device="hpu").resize_(2000), (8000, 12000)),
}


@pytest.mark.parametrize("name", _CHARGES)
def test_what_is_kept_is_charged_to_the_byte(name: str, memory: Callable[[], tuple[int, int]]) -> None:
    make, expected = _CHARGES[name]

    kept = make()

    assert kept is not None
    assert memory() == expected


@pytest.mark.needs_torch("2.3", "storages of this device that Python resizes")
@pytest.mark.usefixtures("eager_mode")
def test_a_freed_storage_is_not_charged(memory: Callable[[], tuple[int, int]]) -> None:
    """Its tensor is still there."""
    x = torch.empty(1000, device="hpu")
    x.untyped_storage().resize_(0)

    assert memory()[0] == 0
    assert x.shape == (1000,)


def test_a_training_step_gives_everything_back(memory: Callable[[], tuple[int, int]]) -> None:
    """Parameters (440 bytes) and gradients (440 more) stay, activations do not."""
    model = torch.nn.Linear(10, 10).to("hpu")
    model(torch.ones(5, 10, device="hpu")).sum().backward()
    gc.collect()
    with_gradients = memory()[0]
    model.zero_grad(set_to_none=True)

    assert (with_gradients, memory()[0]) == (880, 440)


def test_resetting_takes_the_peak_down_to_what_is_in_use(memory: Callable[[], tuple[int, int]]) -> None:
    """A peak is measured from the last reset."""
    x = torch.empty(1000, device="hpu")
    y = torch.empty(1000, device="hpu")
    del y

    hpu_sim.reset_stats()

    assert memory() == (x.untyped_storage().nbytes(), 4000)


@pytest.mark.filterwarnings("ignore:The argument 'device'")
def test_pinning_an_empty_tensor_pins_no_other_empty_tensor() -> None:
    """Empty tensors share the null pointer, which must not count as pinned."""
    kept = torch.empty(0).pin_memory("hpu")

    assert kept.numel() == 0
    assert not torch.empty(0).is_pinned("hpu")


# Torch before 2.5 wants to be told the device; later ones need not be.
@pytest.mark.filterwarnings("ignore:The argument 'device'")
@pytest.mark.parametrize(
    "device",
    [pytest.param((), marks=pytest.mark.needs_torch("2.5", "pinned memory for devices other than CUDA")), ("hpu",)],
)
def test_pinned_memory_is_the_hosts(device: tuple[str, ...], memory: Callable[[], tuple[int, int]]) -> None:
    """It is marked, keeps its content, and is not charged to the card."""
    pinned = torch.arange(6.0).view(2, 3).t().pin_memory(*device)

    assert pinned.is_pinned(*device)
    assert not torch.arange(3.0).is_pinned(*device)
    assert pinned.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert memory() == (0, 0)


_EXHAUST: Final = """
import json
import hpu_sim
hpu_sim.activate()
import torch
from hpu_sim.device.runtime import native

native().set_memory_limit(1000)
report = {}


def attempt(name, function):
    try:
        function()
    except (RuntimeError, TypeError) as error:
        report[name] = [type(error).__name__, str(error).splitlines()[0]]


x = torch.ones(100, device="hpu")
attempt("empty", lambda: torch.empty(151, device="hpu"))
attempt("to", lambda: torch.ones(151).to("hpu"))
attempt("operator", lambda: torch.cat([x, x]))
attempt("out", lambda: torch.cat([x, x], out=torch.empty(0, device="hpu")))
attempt("resize", lambda: x.resize_(160))
attempt("storage", lambda: x.untyped_storage().resize_(1004))
report["shape"] = list(x.shape)
y = torch.ones(1, device="hpu")
attempt("set", lambda: y.set_(x.untyped_storage(), 0, (160,), (1,)))
attempt("set contiguous", lambda: y.set_(x.untyped_storage(), 0, (160,)))
report["set shape"] = [y.tolist(), y.untyped_storage().nbytes()]
del y
report["in use"] = hpu_sim.stats()["allocated_bytes"]
y = x[:100] + 1
report["afterwards"] = y.sum().item()
del x
report["room again"] = torch.empty(150, device="hpu").numel()
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def exhausted(output_of: Callable[..., str]) -> dict[str, object]:
    """What happens on a card of 1000 bytes of which 400 are in use."""
    return dict(json.loads(output_of(_EXHAUST)))


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("empty", 604),
        ("to", 604),
        ("operator", 800),
        ("out", 800),
        ("resize", 640),
        pytest.param(
            "storage", 1004, marks=pytest.mark.needs_torch("2.3", "storages of this device that Python resizes")
        ),
    ],
)
def test_no_more_memory_is_torchs_error(call: str, wanted: int, exhausted: dict[str, object]) -> None:
    """It has the bridge's words, says that the card is simulated, what was wanted and what there is."""
    bridge = f"[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::{wanted} ({wanted / 2**20:g})MB."
    own = f"HPU out of memory (simulated): tried to allocate {wanted} bytes with 400 of 1000 bytes in use."

    assert exhausted[call] == ["OutOfMemoryError", f"{bridge} {own}"]


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
@pytest.mark.parametrize("call", ["set", "set contiguous"])
def test_set_keeps_the_tensor_if_the_memory_is_exhausted(call: str, exhausted: dict[str, list[object]]) -> None:
    """The tensor keeps its size and its storage, whether or not strides are given."""
    assert exhausted[call][0] == "OutOfMemoryError"
    assert exhausted["set shape"] == [[1], 4]


def test_the_card_goes_on_after_a_failed_allocation(exhausted: dict[str, object]) -> None:
    """Nothing was charged, tensors keep their size and content, and freed memory can be had again."""
    assert (exhausted["shape"], exhausted["in use"]) == ([100], 400)
    assert (exhausted["afterwards"], exhausted["room again"]) == (200, 150)
