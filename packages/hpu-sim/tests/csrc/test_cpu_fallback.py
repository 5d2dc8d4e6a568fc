"""Operators run on the CPU's kernels over the card's memory."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable

_ids = itertools.count()


def test_an_operator_in_place_returns_its_argument() -> None:
    """It is the same Python object, with the result in it."""
    x = torch.ones(2, device="hpu")

    assert x.mul_(3) is x
    assert x.tolist() == [3, 3]


def _empty(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device="hpu")


# Outputs, an operator that fills them, and what they hold then.
_OUTPUTS: dict[str, tuple[Callable[[], list[torch.Tensor]], Callable[..., Any], list[Any]]] = {
    "one": (
        lambda: [torch.zeros(3, device="hpu")],
        lambda out: torch.add(torch.ones(3, device="hpu"), 1, out=out),
        [[2, 2, 2]],
    ),
    "an empty one, which grows": (
        lambda: [_empty()],
        lambda out: torch.cat([torch.ones(2, device="hpu"), torch.zeros(2, device="hpu")], out=out),
        [[1, 1, 0, 0]],
    ),
    "several": (
        lambda: [_empty(), _empty(torch.long)],
        lambda *out: torch.max(torch.eye(3, device="hpu"), 1, out=out),
        [[1, 1, 1], [0, 1, 2]],
    ),
    # Torch's kernel with outputs lists the devices that it serves.
    "mode": (
        lambda: [_empty(), _empty(torch.long)],
        lambda *out: torch.mode(torch.tensor([1.0, 2.0, 2.0], device="hpu"), out=out),
        [2, 2],
    ),
}


@pytest.mark.parametrize("name", _OUTPUTS)
def test_outputs_are_filled_and_returned(name: str) -> None:
    """They are the same Python objects."""
    make, fill, expected = _OUTPUTS[name]
    outputs = make()

    returned = fill(*outputs)

    returned = [returned] if isinstance(returned, torch.Tensor) else list(returned)
    assert all(left is right for left, right in zip(returned, outputs, strict=True))
    assert [each.tolist() for each in outputs] == expected


def test_an_out_argument_of_another_size_is_resized_with_torchs_warning() -> None:
    """As on the CPU."""
    out = torch.ones(2, device="hpu")

    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.add(torch.ones(3, device="hpu"), 1, out=out)

    assert out.tolist() == [2, 2, 2]


def test_an_out_argument_that_is_a_view_writes_to_its_base() -> None:
    """Strides of the view are kept."""
    base = torch.zeros(2, 3, device="hpu")

    torch.add(torch.ones(2, device="hpu"), 1, out=base[:, 1])

    assert base.tolist() == [[0, 2, 0], [0, 2, 0]]


def test_an_operator_that_returns_a_view_of_its_argument_shares_memory() -> None:
    """The CPU's kernel made the view, over the memory that it was lent."""
    x = torch.zeros(2, 3, device="hpu")

    for view in torch.ops.aten.split_with_sizes(x, [1, 1]):
        view.add_(1)

    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]


_DTYPES = (torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int32, torch.int64, torch.bool)
# What is made of four rows of four numbers.
_RESULTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "max": lambda x: torch.max(x, 0),
    "sort": torch.sort,
    "topk": lambda x: torch.topk(x, 2),
    "eigh": torch.linalg.eigh,
    "var_mean": torch.var_mean,
    "mode": torch.mode,
    "frexp": torch.frexp,
    "foreach": lambda x: torch._foreach_mul([x, x[0], x[:, 1]], 2.5),
    "norms": lambda x: torch._foreach_norm([x, x[0]]),
    "window": lambda x: [torch.kaiser_window(5, device=x.device)],
    "dtypes": lambda x: [x.to(dtype).to(other) for dtype in _DTYPES for other in _DTYPES],
    "of a transposed tensor": lambda x: [x.t() * 2, x.t().contiguous(), x.t().sum(0)],
    "of a strided tensor": lambda x: [x[:, ::2] * 2, x[:, ::2].contiguous(), x[:, ::2].sum(0)],
    "of an expanded tensor": lambda x: [x[:1].expand(3, 4) * 2, x[:1].expand(3, 4).contiguous()],
}


@pytest.mark.parametrize("name", _RESULTS)
def test_results_are_those_of_the_cpu(name: str) -> None:
    """Each is on the card, equal to the bit, and has the same strides."""
    x = torch.randn(4, 4)

    for result, host in zip(_RESULTS[name](x.to("hpu")), _RESULTS[name](x), strict=True):
        assert result.device.type == "hpu"
        assert result.stride() == host.stride()
        assert torch.equal(result.cpu(), host)


_MIXED: dict[str, Callable[[], Any]] = {
    "add": lambda: torch.ones(2, device="hpu") + torch.ones(2),
    "add to a host tensor": lambda: torch.ones(2) + torch.ones(2, device="hpu"),
    "in place": lambda: torch.ones(2, device="hpu").add_(torch.ones(2)),
    "matmul": lambda: torch.ones(2, 2, device="hpu") @ torch.ones(2, 2),
    "cat": lambda: torch.cat([torch.ones(2, device="hpu"), torch.ones(2)]),
    "linear with an input left behind": lambda: torch.nn.Linear(2, 2).to("hpu")(torch.ones(1, 2)),
    "linear left behind": lambda: torch.nn.Linear(2, 2)(torch.ones(1, 2, device="hpu")),
    "embedding": lambda: functional.embedding(torch.tensor([1]), torch.ones(2, 2, device="hpu")),
    "where": lambda: torch.where(torch.ones(2, device="hpu") > 0, torch.ones(2), torch.ones(2, device="hpu")),
    "cross entropy": lambda: functional.cross_entropy(torch.ones(1, 2, device="hpu"), torch.tensor([0])),
    "foreach": lambda: torch._foreach_add([torch.ones(2, device="hpu")], [torch.ones(2)]),
}


@pytest.mark.parametrize("mixture", _MIXED)
def test_tensors_of_host_and_card_do_not_mix(mixture: str) -> None:
    """The error is torch's own and names the two devices."""
    message = "Expected all tensors to be on the same device, but found at least two devices, hpu:0 and cpu!"

    with pytest.raises(RuntimeError, match=message):
        _MIXED[mixture]()


_INDICES: dict[str, Callable[[torch.device], Any]] = {
    "bool mask": lambda device: torch.tensor([[True, False, True], [False, True, False]], device=device),
    "row mask": lambda device: torch.tensor([False, True], device=device),
    "indices": lambda device: torch.tensor([1, 0, 1], device=device),
    "two indices": lambda device: (torch.tensor([1, 0], device=device), torch.tensor([2, 2], device=device)),
    "index and slice": lambda device: (slice(None), torch.tensor([0, 2], device=device)),
    "none and index": lambda device: (None, torch.tensor([1], device=device)),
}


@pytest.mark.parametrize("device", ["hpu", "cpu"])
@pytest.mark.parametrize("index", _INDICES)
def test_indices_of_either_side_select(index: str, device: str) -> None:
    """Index tensors may stay on the host, as on every accelerator."""
    x = torch.arange(6.0).view(2, 3)

    selected = x.to("hpu")[_INDICES[index](torch.device(device))]

    assert torch.equal(selected.cpu(), x[_INDICES[index](torch.device("cpu"))])


@pytest.mark.parametrize("device", ["hpu", "cpu"])
@pytest.mark.parametrize("index", _INDICES)
def test_indices_of_either_side_assign(index: str, device: str) -> None:
    """What is assigned may be a number."""
    if index == "none and index" and device == "cpu":
        index = "indices"
    x = torch.zeros(2, 3)
    card = x.to("hpu")

    x[_INDICES[index](torch.device("cpu"))] = 5
    card[_INDICES[index](torch.device(device))] = 5

    assert torch.equal(card.cpu(), x)


def test_an_error_of_a_kernel_is_torchs() -> None:
    """Shapes that do not fit are told as on the CPU, and the next operator works."""
    x = torch.ones(2, 3, device="hpu")

    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        x @ x

    assert (x @ x.t()).tolist() == [[3, 3], [3, 3]]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_empty_tensors_take_part(shape: tuple[int, ...]) -> None:
    """Arithmetic, reductions, copies and printing."""
    x = torch.empty(shape, device="hpu")

    assert (x + 1).shape == shape
    assert x.sum().item() == 0
    assert x.cpu().shape == shape
    assert x.tolist() == torch.empty(shape).tolist()
    assert "hpu:0" in repr(x)


def test_channels_last_is_kept() -> None:
    """A convolution has the layout and the numbers that it has on the CPU."""
    layer = torch.nn.Conv2d(3, 2, 3)
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    expected = layer(x)

    result = layer.to("hpu")(x.to("hpu"))

    assert result.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(result.cpu(), expected)


def test_a_conjugate_is_lazy_and_right() -> None:
    """The conj bit is kept on the card, and operators see through it."""
    pairs = torch.randn(3, 3, 2)
    host, card = torch.view_as_complex(pairs), torch.view_as_complex(pairs.to("hpu"))

    assert card.conj().is_conj()
    assert torch.equal(
        torch.view_as_real(card.conj().resolve_conj()).cpu(), torch.view_as_real(host.conj().resolve_conj())
    )
    assert torch.equal(card.conj().cpu(), host.conj())
    assert torch.equal(torch.view_as_real(card.conj() @ card).cpu(), torch.view_as_real(host.conj() @ host))


def test_a_negative_view_is_lazy_and_right() -> None:
    """The neg bit is kept on the card, and operators and copies to the host see through it."""
    pairs = torch.randn(3, 2)

    negative = torch.view_as_complex(pairs.to("hpu")).conj().imag

    assert negative.is_neg()
    assert torch.equal((negative + 1).cpu(), 1 - pairs[:, 1])
    assert torch.equal(negative.cpu(), -pairs[:, 1])


@pytest.mark.needs_torch("2.2", "tags of operators that Python defines")
def test_an_operator_does_not_inherit_properties_of_a_deregistered_one(
    statistics: Callable[[], dict[str, int]],
) -> None:
    """A new operator may get the schema address of the one before, and has other tags and more arguments."""
    for _ in range(20):
        for schema, tags, host_syncs in (
            # Each is one more, as an operator that a card runs on the CPU.
            ("(Tensor x) -> Tensor", (torch.Tag.data_dependent_output,), 2),
            ("(Tensor x, Tensor? y=None, int[] z=[]) -> Tensor", (), 1),
        ):
            library = torch.library.Library(f"hpu_sim_test_fallback_{next(_ids)}", "FRAGMENT")
            library.define(f"op{schema}", tags=tags)
            library.impl("op", lambda x, *_: x + 1, "CPU")
            x = torch.ones(2, device="hpu")
            before = statistics()["host_syncs"]

            getattr(torch.ops, library.ns).op(x)

            assert statistics()["host_syncs"] - before == host_syncs
            library._destroy()


@pytest.fixture(scope="module")
def resize_and_raise(make_library: Callable[[str], torch.library.Library]) -> Callable[..., torch.Tensor]:
    """An operator that resizes its out argument to 1000 elements and then raises ValueError."""
    library = make_library("hpu_sim_test_resize")
    library.define("op(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")

    def kernel(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        out.resize_(1000).copy_(x)
        raise ValueError("after the resize")

    library.impl("op", kernel, "CPU")
    operator: Callable[..., torch.Tensor] = torch.ops.hpu_sim_test_resize.op
    return operator


@pytest.mark.needs_torch("2.1", "fragments of libraries")
def test_a_kernel_that_raises_after_a_resize_leaves_a_valid_tensor(
    resize_and_raise: Callable[..., torch.Tensor],
) -> None:
    """The tensor has the new size and memory, and the bytes in use account for both."""
    before = native().memory_stats()
    x, out = torch.full((1,), 3.0, device="hpu"), torch.empty(2, device="hpu")

    with pytest.raises(ValueError, match="after the resize"):
        resize_and_raise(x, out=out)

    assert out.sum().item() == 3000
    assert out.resize_(2000)[:1000].sum().item() == 3000
    assert native().memory_stats()["in_use"] - before["in_use"] == 4 + 8000
    del x, out
    after = native().memory_stats()
    assert after["in_use"] == before["in_use"]
    assert after["num_allocs"] - after["num_frees"] == before["num_allocs"] - before["num_frees"]


@pytest.mark.parametrize("activation", [torch.nn.functional.mish, torch.nn.functional.silu], ids=["mish", "silu"])
def test_an_activation_is_differentiated_by_the_kernel_of_the_cpu(
    activation: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Torch has a decomposition of the backward operator too, which rounds after each step."""
    gradients = []
    for device in ("cpu", "hpu"):
        x = torch.linspace(-3, 3, 50).bfloat16().to(device).requires_grad_()
        activation(x).sum().backward()
        assert x.grad is not None
        gradients.append(x.grad.cpu())

    assert torch.equal(*gradients)


@pytest.mark.parametrize("write", [lambda a, x: a.add_(x), lambda a, x: torch.add(x, x, out=a)], ids=["add_", "out"])
def test_a_tensor_of_the_host_is_no_target(write: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
    """Also one without dimensions, which may be an input."""
    with pytest.raises(RuntimeError, match="at least two devices"):
        write(torch.tensor(1.0), torch.tensor(2.0, device="hpu"))
