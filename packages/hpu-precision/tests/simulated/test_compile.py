"""Tests that casts under torch.compile equal those of eager execution."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch.nn import functional

from hpu_core import frameworks
from hpu_precision import HPUPrecisionPlugin
from hpu_testing.modules import make_loader, to_floats

from .modules import Classifier

_lightning = frameworks.current()

pytestmark = [
    # Releases with HMP do not support torch.compile.
    pytest.mark.usefixtures("needs_autocast"),
    pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1, whose Trainer unwraps"),
]

_BACKENDS = ["eager", "aot_eager"]
_LISTS: dict[str, dict[str, Any]] = {
    "default lists": {},
    "own lists": {"bf16_ops": ["relu"], "fp32_ops": ["linear", "cross_entropy"]},
    "verbose": {"verbose": True},
}


@pytest.fixture(autouse=True)
def no_graphs() -> None:
    """Discard the graphs of earlier tests."""
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("lists", "backend"),
    [
        ("default lists", "eager"),
        ("own lists", "aot_eager"),
        pytest.param("default lists", "aot_eager", marks=pytest.mark.slow),
        pytest.param("own lists", "eager", marks=pytest.mark.slow),
        *(pytest.param("verbose", backend, marks=pytest.mark.slow) for backend in _BACKENDS),
    ],
)
def test_compiled_module_trains_like_an_eager_one(lists: str, backend: str, trainer: Callable[..., Any]) -> None:
    """Losses and dtypes are the same."""
    compiled, eager = Classifier(), Classifier()
    for module in (torch.compile(compiled, backend=backend), eager):
        trainer(HPUPrecisionPlugin("bf16-mixed", **_LISTS[lists])).fit(module, make_loader())

    assert to_floats(compiled.losses) == pytest.approx(to_floats(eager.losses), rel=1e-2)
    assert compiled.dtypes == eager.dtypes


@pytest.mark.parametrize("backend", _BACKENDS)
def test_graphs_are_recompiled_for_other_lists(backend: str) -> None:
    """A compiled function has the casts of the current lists, and none outside a step."""

    @torch.compile(backend=backend)
    def product(data: torch.Tensor) -> torch.Tensor:
        return functional.linear(data, data)

    data = torch.ones(4, 4, device="hpu")
    plugins = [
        HPUPrecisionPlugin("bf16-mixed"),
        HPUPrecisionPlugin("bf16-mixed", bf16_ops=["relu"], fp32_ops=["linear"]),
        HPUPrecisionPlugin("bf16-mixed", bf16_ops=["linear"]),
        HPUPrecisionPlugin(32),
        HPUPrecisionPlugin("bf16-mixed"),
    ]

    dtypes = []
    for plugin in plugins:
        with plugin.forward_context():
            dtypes.append(product(data).dtype)

    assert dtypes == [torch.bfloat16, torch.float32, torch.bfloat16, torch.float32, torch.bfloat16]
