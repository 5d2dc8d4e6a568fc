"""Canary: methods of Lightning that the plugins override, and private names of torch that the kernels use.

A renamed base method would turn an override into dead code. These tests fail instead.
"""

import inspect
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin
from hpu_precision._lightning import FabricPrecision, Precision

_torch_2_2 = pytest.mark.skipif(Version(torch.__version__) < Version("2.2.dev0"), reason="Requires: torch 2.2")

_COMMON = ("forward_context", "load_state_dict", "state_dict", "teardown")
# Added in Lightning 2.1.
_ADDED = ("convert_input", "convert_module", "module_init_context", "tensor_init_context")
_OVERRIDES = [
    *(
        (HPUPrecisionPlugin, Precision, name)
        for name in (*_COMMON, *_ADDED, "clip_gradients", "optimizer_step", "pre_backward")
    ),
    *(
        (FabricHPUPrecision, FabricPrecision, name)
        for name in (*_COMMON, *_ADDED, "backward", "convert_output", "optimizer_step", "unscale_gradients")
    ),
]


@pytest.mark.parametrize(("plugin", "base", "name"), _OVERRIDES)
def test_override_matches_lightnings_method(plugin: type, base: type, name: str) -> None:
    """The base has the method, and the override has the same parameters."""
    if name in {*_ADDED, "convert_output"} and not hasattr(base, name):
        pytest.skip("Requires: Lightning 2.1")

    ours, theirs = (inspect.signature(getattr(cls, name)).parameters.values() for cls in (plugin, base))

    assert [(p.name, p.kind) for p in ours] == [(p.name, p.kind) for p in theirs]


@pytest.mark.parametrize(
    "path",
    [
        "_C.DispatchKey.AutocastHPU",
        "_C._dispatch_get_registrations_for_dispatch_key",
        "_C._dispatch_has_backend_fallback",
        "_C._dispatch_has_kernel",
        "_C._dispatch_tls_set_dispatch_key_excluded",
        "_ops.OpOverload._schema",
        "_ops.OpOverload._op",
        "_ops.OpOverloadPacket.overloads",
        pytest.param("library.Library._destroy", marks=_torch_2_2),
    ],
)
def test_torch_has_the_private_name(path: str) -> None:
    value: Any = torch
    for name in path.split("."):
        # Instance attributes are looked up on an operator.
        value = torch.ops.aten.add.Tensor if value is torch._ops.OpOverload else value
        value = getattr(value, name)
