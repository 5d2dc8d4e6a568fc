"""Tests of every op in the default lists."""

import pytest
import torch

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


@pytest.mark.parametrize(("kind", "name"), _OPS, ids=[name for _, name in _OPS])
def test_op_is_not_cast_outside_a_step(kind: str, name: str) -> None:
    with HPUPrecisionPlugin("bf16-mixed").forward_context():
        pass

    assert CALLS[kind][name](torch.float32).dtype == torch.float32
