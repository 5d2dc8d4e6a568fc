"""Operators that torch's CPU lacks for a dtype of low precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_needs_float8 = pytest.mark.needs_torch("2.1", "float8")

_FLOAT8: Final = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]

_OPERATORS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "add": lambda x: torch.add(x, x),
    "mul by a number": lambda x: torch.mul(x, 1.3),
    "relu": torch.relu,
    "sum": lambda x: torch.sum(x, 0),
    "cumsum": lambda x: torch.cumsum(x, 0),
    "matmul": lambda x: torch.matmul(x, x.t()),
    "list of tensors": lambda x: torch._foreach_add([x, x], 1.0)[1],
}


def _numbers(dtype: torch.dtype) -> torch.Tensor:
    return torch.linspace(-3, 3, 12).view(3, 4).to(dtype)


@_needs_float8
@pytest.mark.parametrize("dtype", _FLOAT8, ids=str)
@pytest.mark.parametrize("name", _OPERATORS)
def test_an_operator_is_computed_in_float32_and_rounded_once(name: str, dtype: torch.dtype) -> None:
    numbers = _numbers(dtype)
    expected = _OPERATORS[name](numbers.float()).to(dtype)

    result = _OPERATORS[name](numbers.to("hpu"))

    assert (result.dtype, result.device.type) == (dtype, "hpu")
    assert torch.equal(result.cpu().float(), expected.float())


@_needs_float8
@pytest.mark.parametrize("dtype", _FLOAT8, ids=str)
def test_an_operator_in_place_writes_the_rounded_result(dtype: torch.dtype) -> None:
    x = _numbers(dtype).to("hpu")
    expected = _numbers(dtype).float().mul_(1.3).to(dtype)

    assert x.mul_(1.3) is x
    assert torch.equal(x.cpu().float(), expected.float())


@_needs_float8
@pytest.mark.parametrize("dtype", _FLOAT8, ids=str)
def test_a_list_is_written_once_if_the_cpu_lacks_the_dtype_of_its_last_tensor(dtype: torch.dtype) -> None:
    """The CPU's kernel has written the first tensor when it meets the other one."""
    wide, narrow = torch.zeros(3, device="hpu"), torch.zeros(3).to(dtype).to("hpu")

    torch._foreach_add_([wide, narrow], 1.0)

    assert (wide.tolist(), narrow.float().tolist()) == ([1, 1, 1], [1, 1, 1])


@_needs_float8
@pytest.mark.parametrize("dtype", _FLOAT8, ids=str)
def test_an_out_argument_grows_to_the_result(dtype: torch.dtype) -> None:
    x = _numbers(dtype).to("hpu")
    out = torch.empty(0, device="hpu").to(dtype)

    torch.add(x, x, out=out)

    assert torch.equal(out.cpu().float(), (_numbers(dtype).float() * 2).to(dtype).float())


@_needs_float8
def test_a_requested_dtype_is_that_of_the_result() -> None:
    x = _numbers(_FLOAT8[0]).to("hpu")

    assert torch.sum(x, 0, dtype=torch.float32).dtype == torch.float32
    assert torch.sum(x, 0, dtype=torch.float16).dtype == torch.float16


@_needs_float8
@pytest.mark.parametrize(
    ("operator", "dtype"),
    [
        pytest.param(lambda x: torch.softmax(x, 0), "float8_e4m3fn", id="no float8 in the table"),
        pytest.param(lambda x: torch.linalg.cholesky(x @ x.t()), "bfloat16", id="no bfloat16 in the table"),
        pytest.param(torch.digamma, "float8_e4m3fn", id="not in the table"),
    ],
)
def test_a_dtype_without_a_kernel_on_a_card_is_refused(
    operator: Callable[[torch.Tensor], torch.Tensor], dtype: str
) -> None:
    """A card runs the operator on the CPU then, which lacks the dtype."""
    with pytest.raises((RuntimeError, NotImplementedError), match=r"not implemented for '(Float8|BFloat16)"):
        operator(_numbers(getattr(torch, dtype)).to("hpu"))


@_needs_float8
def test_an_operator_that_float32_lacks_too_raises_for_the_dtype_of_the_program() -> None:
    x = _numbers(_FLOAT8[0]).to("hpu")

    with pytest.raises((RuntimeError, NotImplementedError), match="Float8_e4m3fn"):
        torch.bitwise_not(x)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_the_gradient_of_a_softmax_has_the_dtype_of_the_input(function: Callable[..., torch.Tensor]) -> None:
    """The dtype is an argument of the operator."""
    x = _numbers(torch.float16).to("hpu").requires_grad_()
    wide = _numbers(torch.float16).float().requires_grad_()

    function(x, 0)[0].sum().backward()
    function(wide, 0)[0].sum().backward()

    assert x.grad is not None
    assert x.grad.dtype == torch.float16
    torch.testing.assert_close(x.grad.cpu().float(), wide.grad, atol=1e-3, rtol=1e-2)
