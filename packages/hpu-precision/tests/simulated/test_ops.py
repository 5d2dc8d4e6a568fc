"""Tests of every op in the default lists."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from hpu_precision import HPUPrecisionPlugin, default_op_lists

from .ops import CALLS

_DTYPES = {"lower": torch.bfloat16, "fp32": torch.float32}
_OPS = [(kind, name) for kind, calls in CALLS.items() for name in calls]


@pytest.fixture(scope="module", params=[False, True], ids=["quiet", "verbose"])
def plugin(request: pytest.FixtureRequest) -> HPUPrecisionPlugin:
    """Return a plugin that uses HMP or the bridge's autocast, and one that uses our kernels."""
    return HPUPrecisionPlugin("bf16-mixed", verbose=request.param)


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16], ids=["from float32", "from bfloat16"])
@pytest.mark.parametrize(("kind", "name"), _OPS, ids=[name for _, name in _OPS])
def test_op_runs_in_the_dtype_of_its_list(kind: str, name: str, given: torch.dtype, plugin: HPUPrecisionPlugin) -> None:
    with plugin.forward_context():
        result = CALLS[kind][name](given)

    assert result.dtype == _DTYPES[kind]


@pytest.mark.parametrize("kind", ["lower", "fp32"])
def test_every_op_of_the_default_lists_has_a_call(kind: str) -> None:
    assert set(CALLS[kind]) == getattr(default_op_lists(), kind)


_INDEX = torch.tensor([2, 0, 1])


def _spectral_norm(data: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 3)
    torch.nn.utils.parametrizations.spectral_norm(layer)
    layer.to(data.device)
    return layer.weight @ data


# By name: a call with a matrix of three rows and columns in bfloat16, and with tensors in float32.
_UNLISTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "addmv": lambda data: torch.addmv(data[0], data.float(), data[1]),
    "multi_dot": lambda data: torch.linalg.multi_dot([data, data.float(), data]),
    "prelu": lambda data: functional.prelu(data - 0.5, torch.full((1,), 0.25, device=data.device)),
    "vecdot": lambda data: torch.linalg.vecdot(data, data.float()),
    "cross": lambda data: torch.cross(data, data.float().flip(0), 1),
    "grid_sample": lambda data: functional.grid_sample(
        data[None, None], data.float()[None, :, :2, None].expand(1, 3, 2, 2), align_corners=False
    ),
    "index_copy": lambda data: data.float().index_copy(0, _INDEX.to(data.device), data),
    "index_put": lambda data: data.float().index_put((_INDEX.to(data.device),), data),
    "scatter_add": lambda data: data.float().scatter_add(0, _INDEX.to(data.device)[:, None].expand(3, 3), data),
    "spectral_norm": _spectral_norm,
    "tensordot": lambda data: torch.tensordot(data, data.float(), 1),
    "ctc_loss": lambda data: functional.ctc_loss(
        data[:, None].log_softmax(-1), torch.tensor([[1, 2]], device=data.device), torch.tensor([3]), torch.tensor([2])
    ),
    "inv": lambda data: torch.linalg.inv(data + torch.eye(3, device=data.device).to(data.dtype)),
    "quantile": lambda data: data.quantile(0.3),
    "solve": lambda data: torch.linalg.solve(data.float() + torch.eye(3, device=data.device), data),
}


@pytest.mark.parametrize("call", _UNLISTED.values(), ids=_UNLISTED)
def test_op_that_fails_without_a_cast_computes(
    call: Callable[[torch.Tensor], torch.Tensor], plugin: HPUPrecisionPlugin
) -> None:
    """The bridge casts none of these, and torch refuses inputs of two dtypes or bfloat16."""
    data = torch.linspace(0.1, 0.9, 9).reshape(3, 3).sin()
    given = data.to("hpu", torch.bfloat16).requires_grad_()
    with plugin.forward_context():
        result = call(given)
    result.float().sum().backward()

    expected = data.requires_grad_()
    call(expected).sum().backward()
    torch.testing.assert_close(result.float().cpu(), call(expected), rtol=2e-2, atol=2e-2)
    assert given.grad is not None
    torch.testing.assert_close(given.grad.float().cpu(), expected.grad, rtol=5e-2, atol=5e-2)
