"""Making tensors, and giving tensors other memory or another size."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

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
    """A process sees its card as index 0. torch.device is a context, too."""
    with torch.device(device):
        assert torch.empty(1, device=device).device == torch.zeros(1).device == torch.device("hpu:0")


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


_REFUSALS: Final[dict[str, tuple[Callable[[], object], str]]] = {
    # The second card of the machine belongs to another process.
    "empty on another card": (lambda: torch.empty(1, device="hpu:1"), "habana active device 1 != 0"),
    "copy to another card": (lambda: torch.ones(1).to("hpu:1"), "habana active device 1 != 0"),
    "copy between cards": (lambda: torch.ones(1, device="hpu").to("hpu:1"), "habana active device 1 != 0"),
    "strided on another card": (lambda: torch.empty_strided((1,), (1,), device="hpu:1"), "habana active device 1 != 0"),
    "module on another card": (lambda: torch.nn.Linear(1, 1, device="hpu:1"), "habana active device 1 != 0"),
    "sparse": (
        lambda: torch.empty(1, layout=torch.sparse_coo, device="hpu"),
        r"hpu tensors must be dense .* with layout Sparse",
    ),
    "pinned": (lambda: torch.empty(1, device="hpu", pin_memory=True), "Only dense CPU tensors can be pinned"),
    "negative size": (lambda: torch.ones(4, device="hpu").resize_(-1), "Storage size calculation overflowed"),
    "memory of the host": (lambda: _set(torch.ones(3, device="hpu"), torch.ones(3)), "the devices must match"),
}


@pytest.mark.usefixtures("eager_mode")
@pytest.mark.parametrize("name", _REFUSALS)
def test_what_a_card_does_not_hold_is_refused(name: str) -> None:
    make, message = _REFUSALS[name]

    with pytest.raises(RuntimeError, match=message):
        make()


def _empty() -> torch.Tensor:
    return torch.empty(0, device="hpu")


# What is made of the numbers from 0 to 5.
_MADE: Final[dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], list[Any]]]] = {
    "resize_ to more": (lambda x: x.resize_(2, 4)[0], [0, 1, 2, 3]),
    "resize_ to less and back": (lambda x: x.resize_(2).resize_(6), [0, 1, 2, 3, 4, 5]),
    "resize_ of a view": (lambda x: x[2:].resize_(8)[:4], [2, 3, 4, 5]),
    "resize_as_": (lambda x: _empty().resize_as_(x.view(2, 3)).fill_(1), [[1, 1, 1], [1, 1, 1]]),
    "set_ to a tensor": (lambda x: _set(_empty(), x.view(2, 3)), [[0, 1, 2], [3, 4, 5]]),
    "set_ to a storage": (lambda x: _set(_empty(), x.view(2, 3).untyped_storage()), [0, 1, 2, 3, 4, 5]),
    "set_ to a part of a storage": (
        lambda x: _set(_empty(), x.untyped_storage(), 1, (2, 2), (3, 1)),
        [[1, 2], [4, 5]],
    ),
    "set_ beyond a storage": (lambda x: _set(x, x.untyped_storage(), 0, (8,), (1,))[:6], [0, 1, 2, 3, 4, 5]),
    "set_ to nothing": (_set, []),
    "resize_ of a storage": (lambda x: (x.untyped_storage().resize_(64), x)[1], [0, 1, 2, 3, 4, 5]),
}
_OF_STORAGES: Final = {
    "resize_ of a storage": ("2.3", "storages of this device that Python resizes"),
    **dict.fromkeys(
        ("set_ to a storage", "set_ to a part of a storage", "set_ beyond a storage"),
        ("2.1", "storages of this device in Python"),
    ),
}


@pytest.mark.usefixtures("eager_mode")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs_torch(*_OF_STORAGES[name]) if name in _OF_STORAGES else ())
        for name in _MADE
    ],
)
def test_a_tensor_keeps_the_numbers_of_its_memory(name: str) -> None:
    make, expected = _MADE[name]

    made = make(torch.arange(6.0, device="hpu"))

    assert made.tolist() == expected
    assert made.device.type == "hpu"


def test_resize_takes_a_memory_format() -> None:
    """Strides follow it."""
    x = torch.empty(0, device="hpu")

    x.resize_(1, 2, 3, 4, memory_format=torch.channels_last)

    assert x.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.needs_torch("2.3", "storages of this device that Python resizes")
@pytest.mark.usefixtures("eager_mode")
def test_a_storage_freed_and_made_again_serves_its_tensor() -> None:
    """Sharded training frees a parameter's memory that way between uses."""
    x = torch.ones(4, device="hpu")

    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(16)
    x.fill_(3)

    assert x.tolist() == [3, 3, 3, 3]


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_storages_copy_between_host_and_card() -> None:
    """Both ways, byte by byte."""
    x = torch.arange(4.0, device="hpu")
    host = x.untyped_storage().cpu()
    x.zero_()

    x.untyped_storage().copy_(host)

    assert host.device.type == "cpu"
    assert x.tolist() == [0, 1, 2, 3]


def test_memory_may_be_used_on_another_stream() -> None:
    """record_stream is accepted, since allocators of real cards need it."""
    x = torch.ones(1, device="hpu")

    x.record_stream(hpu.Stream())

    assert x.item() == 1
