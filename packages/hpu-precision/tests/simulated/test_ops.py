"""Every op of the default lists, on this release."""

import pytest
import torch

from hpu_precision import HPUPrecisionPlugin, default_op_lists

from .ops import CALLS

_DTYPES = {"lower": torch.bfloat16, "fp32": torch.float32}
_OPS = [(kind, name) for kind, calls in CALLS.items() for name in calls]


@pytest.fixture(scope="module", params=[False, True], ids=["quiet", "verbose"])
def plugin(request: pytest.FixtureRequest) -> HPUPrecisionPlugin:
    """The plugin with default lists: quiet, by HMP or the bridge's autocast, and verbose, by our kernels."""
    return HPUPrecisionPlugin("bf16-mixed", verbose=request.param)


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16], ids=["from float32", "from bfloat16"])
@pytest.mark.parametrize(("kind", "name"), _OPS, ids=[name for _, name in _OPS])
def test_an_op_gives_the_type_of_its_list(kind: str, name: str, given: torch.dtype, plugin: HPUPrecisionPlugin) -> None:
    """The same table holds on every release and in every way of applying it."""
    with plugin.forward_context():
        result = CALLS[kind][name](given)

    assert result.dtype == _DTYPES[kind]


@pytest.mark.parametrize("kind", ["lower", "fp32"])
def test_every_op_is_tested(kind: str) -> None:
    """No op of the default lists is left out above."""
    assert set(CALLS[kind]) == getattr(default_op_lists(), kind)


@pytest.mark.parametrize(("kind", "name"), _OPS, ids=[name for _, name in _OPS])
def test_an_op_keeps_its_type_outside(kind: str, name: str) -> None:
    """Nothing is cast once the step is over."""
    with HPUPrecisionPlugin("bf16-mixed").forward_context():
        pass

    assert CALLS[kind][name](torch.float32).dtype == torch.float32
