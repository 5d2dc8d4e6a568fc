"""Memory of a strict device: committed at first use, and rounded."""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING, Final

import pytest
import torch

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable


def _in_use() -> int:
    return native().memory_stats()["in_use"]


@pytest.mark.usefixtures("strict")
def test_an_empty_tensor_is_a_handle_until_its_first_use() -> None:
    before = _in_use()
    x = torch.empty(1024, device="hpu")

    untouched = _in_use()
    x.fill_(1)

    assert (untouched - before, _in_use() - before) == (0, 4096)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize(("size", "charged"), [(1, 0), (255, 0), (256, 256), (257, 384), (4000, 4096), (4096, 4096)])
def test_the_memory_in_use_grows_as_the_rules_say(size: int, charged: int) -> None:
    gc.collect()
    before = _in_use()
    x = torch.zeros(size, dtype=torch.uint8, device="hpu")

    assert _in_use() - before == charged
    del x
    assert _in_use() == before


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("make", [torch.zeros, lambda *args, **options: torch.zeros(*args, **options).add(1)])
def test_float64_takes_four_bytes(make: Callable[..., torch.Tensor]) -> None:
    """Of a new tensor, and of a result."""
    before = _in_use()
    x = make(1024, dtype=torch.float64, device="hpu")

    assert _in_use() - before == x.numel() * 4


@pytest.mark.usefixtures("strict")
def test_a_grown_float64_takes_four_bytes() -> None:
    before = _in_use()
    x = torch.zeros(1024, dtype=torch.float64, device="hpu").resize_(4096).fill_(1)

    assert _in_use() - before == x.numel() * 4


@pytest.mark.usefixtures("strict")
def test_int64_takes_four_bytes_where_the_device_lacks_it() -> None:
    native().set_int64_supported(False)
    before = _in_use()
    x = torch.zeros(1024, dtype=torch.int64, device="hpu")
    native().set_int64_supported(True)

    assert _in_use() - before == x.numel() * 4


@pytest.mark.usefixtures("strict")
def test_small_blocks_change_counts_only() -> None:
    before = native().memory_stats()
    x = torch.zeros(4, device="hpu")
    after = native().memory_stats()

    assert x.numel() == 4
    assert (after["in_use"] - before["in_use"], after["num_allocs"] - before["num_allocs"]) == (0, 1)


_SMALL_CARD: Final = """
import json
import hpu_sim
hpu_sim.activate(memory="8MiB", strict=True)
import torch

report = {}
handle = torch.empty(2**60, dtype=torch.uint8, device="hpu")
report["handle"] = handle.numel()
try:
    handle.fill_(1)
    torch.hpu.synchronize()
except RuntimeError as error:
    report["error of the handle"] = str(error).splitlines()[0]
try:
    torch.zeros(12 * 2**20, dtype=torch.uint8, device="hpu")
    torch.hpu.synchronize()
except RuntimeError as error:
    report["error"] = str(error).splitlines()[0]
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def small_card(output_of: Callable[..., str]) -> dict[str, object]:
    """What happens on a card of 8 MiB."""
    return dict(json.loads(output_of(_SMALL_CARD).splitlines()[-1]))


def test_a_handle_may_exceed_the_memory(small_card: dict[str, object]) -> None:
    """And that of the host."""
    assert small_card["handle"] == 2**60


def test_the_first_use_of_such_a_handle_fails(small_card: dict[str, object]) -> None:
    assert "Allocation failed for size::1152921504606846976 (" in str(small_card["error of the handle"])


def test_the_error_of_exhausted_memory_is_the_bridges(small_card: dict[str, object]) -> None:
    text = "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::12582912 (12)MB"
    assert str(small_card["error"]).startswith(text)


_ROUNDED: Final = """
import torch

x = torch.zeros(513, dtype=torch.uint8, device="hpu")
print(torch.hpu.memory_allocated())
"""


@pytest.mark.parametrize(("generation", "charged"), [("GAUDI2", 640), ("GAUDI3", 768)])
def test_blocks_are_multiples_of_the_generation(output_of: Callable[..., str], generation: str, charged: int) -> None:
    """128 bytes, and 256 on GAUDI3."""
    output = output_of(_ROUNDED, HPU_SIM_DEVICES="1", HPU_SIM_STRICT="1", HPU_SIM_GENERATION=generation)

    assert output.splitlines()[-1] == str(charged)
