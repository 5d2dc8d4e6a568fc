"""Making tensors, and giving tensors other memory or another size."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from habana_frameworks.torch import hpu

if TYPE_CHECKING:
    from collections.abc import Callable

_HAS_WEIGHT_NORM = pytest.mark.needs_torch("2.1", "torch.nn.utils.parametrizations.weight_norm")


def _set(tensor: Any, *arguments: Any) -> torch.Tensor:
    """Call `set_`, of whose forms torch's type information knows only some."""
    result: torch.Tensor = tensor.set_(*arguments)
    return result


@pytest.mark.parametrize(
    ("call", "op"),
    [
        (_set, "aten::set_"),
        (lambda x: _set(x, torch.ones(3, device="hpu")), "aten::set_"),
        pytest.param(
            lambda x: x.untyped_storage().resize_(0),
            "UntypedStorage.resize_",
            marks=pytest.mark.needs_torch("2.3", "storages of this device that Python resizes"),
        ),
    ],
    ids=["set_", "set_ to a tensor", "resize of a storage"],
)
def test_lazy_mode_refuses_what_the_bridge_has_in_eager_mode_only(
    call: Callable[[torch.Tensor], object], op: str
) -> None:
    """The tensor stays as it is, and the error names the operator and what to do."""
    x = torch.ones(2, device="hpu")

    with pytest.raises(RuntimeError) as raised:
        call(x)

    assert str(raised.value).startswith(f"This function should not be called in lazy flow: {op} of hpu tensors; ")
    assert "or set PT_HPU_LAZY_MODE=0." in str(raised.value)
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize(
    "parametrize", [pytest.param("weight_norm", marks=_HAS_WEIGHT_NORM), "spectral_norm", "orthogonal"]
)
def test_a_module_that_is_parametrized_on_the_cpu_trains_in_lazy_mode(parametrize: str) -> None:
    register: Callable[[torch.nn.Module], torch.nn.Module] = getattr(torch.nn.utils.parametrizations, parametrize)
    module = register(torch.nn.Linear(4, 4)).to("hpu")

    module(torch.ones(2, 4, device="hpu")).sum().backward()

    assert all(parameter.grad is not None for parameter in module.parameters())


def test_the_error_of_parametrizing_on_the_card_names_the_remedy() -> None:
    """Torch sets the storage of the parameter, which lazy mode of the bridge refuses."""
    module = torch.nn.Linear(4, 4, device="hpu")

    with pytest.raises(RuntimeError, match="parametrize a module before it moves to hpu, or set PT_HPU_LAZY_MODE=0"):
        torch.nn.utils.parametrizations.spectral_norm(module)


@_HAS_WEIGHT_NORM
def test_weight_norm_of_a_module_on_the_card_works_in_lazy_mode() -> None:
    """Neither form sets a storage to register it, unlike an assignment to the weight of the newer one."""
    older, newer = (torch.nn.Linear(4, 4, device="hpu") for _ in range(2))
    weight = older.weight.detach().cpu()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.nn.utils.weight_norm(older)
    torch.nn.utils.parametrizations.weight_norm(newer)

    older(torch.ones(2, 4, device="hpu")).sum().backward()
    newer(torch.ones(2, 4, device="hpu")).sum().backward()

    torch.testing.assert_close(older.weight.detach().cpu(), weight)
    with pytest.raises(RuntimeError, match="aten::set_ of hpu tensors"):
        newer.weight = torch.ones(4, 4, device="hpu")


@pytest.mark.parametrize("device", ["hpu", "hpu:0", torch.device("hpu"), torch.device("hpu", 0)], ids=repr)
def test_every_name_of_the_card_makes_tensors_on_it(device: str | torch.device) -> None:
    """A process sees its card as index 0."""
    assert torch.empty(1, device=device).device == torch.device("hpu:0")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(1, device="hpu:1"),
        lambda: torch.ones(1).to("hpu:1"),
        lambda: torch.ones(1, device="hpu").to("hpu:1"),
        lambda: torch.empty_strided((1,), (1,), device="hpu:1"),
        lambda: torch.nn.Linear(1, 1, device="hpu:1"),
    ],
    ids=["empty", "to", "between cards", "empty_strided", "module"],
)
def test_another_index_is_refused(make: Callable[[], object]) -> None:
    """The second card of the machine belongs to another process."""
    with pytest.raises(RuntimeError, match=r"habana active device 1 != 0"):
        make()


@pytest.mark.parametrize(
    "arguments",
    [{}, {"dtype": torch.int64}, {"memory_format": torch.channels_last}],
    ids=["default", "dtype", "memory_format"],
)
def test_empty_is_laid_out_as_on_the_cpu(arguments: dict[str, Any]) -> None:
    """Dtype and strides are the CPU's."""
    host = torch.empty(2, 3, 4, 5, **arguments)

    tensor = torch.empty(2, 3, 4, 5, device="hpu", **arguments)

    assert (tensor.dtype, tensor.stride()) == (host.dtype, host.stride())


def test_the_default_dtype_counts() -> None:
    """It is torch's, at the time of the call."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.empty(1, device="hpu").dtype == torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_default_device_makes_tensors_on_the_card() -> None:
    """torch.device is a context, too."""
    with torch.device("hpu"):
        assert torch.zeros(1).device.type == "hpu"


def test_only_dense_tensors_live_on_the_card() -> None:
    """The error names the kind of tensor that the card has not."""
    with pytest.raises(RuntimeError, match=r"hpu tensors must be dense .* with layout Sparse"):
        torch.empty(1, layout=torch.sparse_coo, device="hpu")


def test_pinning_device_memory_is_refused() -> None:
    """Pinned memory is the host's."""
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(1, device="hpu", pin_memory=True)


def test_resize_keeps_what_was_there() -> None:
    """A tensor that grows gets new memory with the old content first."""
    x = torch.arange(4.0, device="hpu")

    x.resize_(2, 4)

    assert x.shape == (2, 4)
    assert x[0].tolist() == [0, 1, 2, 3]


def test_resizing_down_keeps_the_memory() -> None:
    """A tensor that shrinks can grow again without loss."""
    x = torch.arange(4.0, device="hpu")
    address = x.data_ptr()

    x.resize_(2).resize_(4)

    assert x.data_ptr() == address
    assert x.tolist() == [0, 1, 2, 3]


def test_a_negative_size_is_torchs_error() -> None:
    """The tensor keeps its size."""
    x = torch.arange(4.0, device="hpu")

    with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
        x.resize_(-1)

    assert x.tolist() == [0, 1, 2, 3]


def test_resize_takes_a_memory_format() -> None:
    """Strides follow it."""
    x = torch.empty(0, device="hpu")

    x.resize_(1, 2, 3, 4, memory_format=torch.channels_last)

    assert x.is_contiguous(memory_format=torch.channels_last)


def test_resize_as_takes_the_shape() -> None:
    """As resize_ with the other's sizes."""
    assert torch.empty(0, device="hpu").resize_as_(torch.ones(2, 3, device="hpu")).shape == (2, 3)


def test_a_view_is_resized_behind_its_offset() -> None:
    """The storage grows by what the offset takes as well."""
    view = torch.arange(4.0, device="hpu")[2:]

    view.resize_(4)

    assert view[:2].tolist() == [2, 3]
    assert view.untyped_storage().nbytes() == 6 * 4


@pytest.mark.usefixtures("eager_mode")
def test_set_to_a_tensor_shares_its_memory() -> None:
    """Both tensors are one memory afterwards."""
    x = torch.zeros(2, 3, device="hpu")
    y = _set(torch.empty(0, device="hpu"), x)

    y.add_(1)

    assert y.shape == (2, 3)
    assert x.sum().item() == 6


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_set_to_a_storage_takes_offset_size_and_stride() -> None:
    """A tensor is laid over a part of the storage."""
    x = torch.arange(6.0, device="hpu")

    y = _set(torch.empty(0, device="hpu"), x.untyped_storage(), 1, (2, 2), (3, 1))

    assert y.tolist() == [[1, 2], [4, 5]]


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_set_to_a_storage_alone_covers_it() -> None:
    """The tensor is flat and as long as the memory."""
    x = torch.arange(6.0, device="hpu").view(2, 3)

    assert _set(torch.empty(0, device="hpu"), x.untyped_storage()).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.usefixtures("eager_mode")
def test_set_to_nothing_empties_a_tensor() -> None:
    """It stays on the card, without memory."""
    x = torch.ones(3, device="hpu")

    _set(x)

    assert (x.numel(), x.device.type) == (0, "hpu")


@pytest.mark.usefixtures("eager_mode")
def test_set_to_memory_of_the_host_is_refused() -> None:
    """A tensor does not change its device that way."""
    with pytest.raises(RuntimeError, match="the devices must match"):
        _set(torch.ones(3, device="hpu"), torch.ones(3))


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_set_beyond_the_storage_grows_it() -> None:
    """As resize_ does."""
    x = torch.ones(1, device="hpu")

    _set(x, x.untyped_storage(), 0, (4,), (1,))

    assert x.untyped_storage().nbytes() == 16
    assert x[0].item() == 1


def test_data_can_be_replaced() -> None:
    """`.data =` gives a parameter other memory."""
    parameter = torch.nn.Parameter(torch.zeros(2, device="hpu"))

    parameter.data = torch.ones(3, device="hpu")

    assert parameter.tolist() == [1, 1, 1]


@pytest.mark.needs_torch("2.3", "swap_tensors")
def test_tensors_can_be_swapped() -> None:
    """swap_tensors exchanges what two names mean."""
    one, two = torch.ones(1, device="hpu"), torch.zeros(2, device="hpu")

    torch.utils.swap_tensors(one, two)

    assert (one.tolist(), two.tolist()) == ([0, 0], [1])


def test_a_storage_is_on_the_card() -> None:
    """It says so, and its size in bytes."""
    storage = torch.ones(3, device="hpu").untyped_storage()

    assert (storage.device, storage.nbytes()) == (torch.device("hpu:0"), 12)


@pytest.mark.needs_torch("2.3", "storages of this device that Python resizes")
@pytest.mark.usefixtures("eager_mode")
def test_a_storage_freed_and_made_again_serves_its_tensor() -> None:
    """Sharded training frees a parameter's memory that way between uses."""
    x = torch.ones(4, device="hpu")

    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(16)
    x.fill_(3)

    assert x.tolist() == [3, 3, 3, 3]


@pytest.mark.needs_torch("2.3", "storages of this device that Python resizes")
@pytest.mark.usefixtures("eager_mode")
def test_a_storage_grows_with_its_content() -> None:
    """The bytes that were there stay."""
    x = torch.arange(4.0, device="hpu")

    x.untyped_storage().resize_(64)

    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_storages_copy_between_host_and_card() -> None:
    """Both ways, byte by byte."""
    x = torch.arange(4.0, device="hpu")
    host = x.untyped_storage().cpu()
    x.zero_()

    x.untyped_storage().copy_(host)

    assert host.device.type == "cpu"
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_a_storage_can_be_cloned() -> None:
    """The clone is another memory on the card."""
    x = torch.ones(2, device="hpu")

    clone = x.untyped_storage().clone()

    assert clone.device.type == "hpu"
    assert clone.data_ptr() != x.data_ptr()


def test_memory_may_be_used_on_another_stream() -> None:
    """record_stream is accepted, since allocators of real cards need it."""
    x = torch.ones(1, device="hpu")

    x.record_stream(hpu.Stream())

    assert x.item() == 1
