"""torch.compile with the bridge's backend."""

from typing import Any

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import AtLeast, Contains, Subject
from hpu_doctor.verify.register._tools import BRIDGE, error_of, module

# Importing torch's compiler takes seconds.
SUBJECT = Subject("torch.compile", mode="eager", quick=False, seconds=180)
assume = SUBJECT.assume


@assume(
    source=BRIDGE + "dynamo/compile_backend/backends.py:47-72",
    expected=True,
    means={
        "hpu-compile": "its default backend would not exist.",
        "hpu-bucketing": "compiled warm-up would fail.",
    },
)
def backend_is_registered() -> object:
    """In eager mode the backend hpu_backend is registered."""
    return "hpu_backend" in torch.compiler.list_backends()


@assume(
    source=BRIDGE + "dynamo/compile_backend, registered in eager mode only",
    expected=False,
    mode="lazy",
    means={"hpu-compile": "it refuses lazy mode where torch.compile would work."},
)
def backend_is_absent_in_lazy_mode() -> object:
    """In lazy mode the backend hpu_backend is not registered."""
    return "hpu_backend" in torch.compiler.list_backends()


@assume(
    source="lightning-habana 1.4 names them; deprecated about 1.14",
    expected=[],
    means={"hpu-compat": "programs with a retired name would keep working."},
    releases=">=1.19",
)
def retired_backends_are_gone() -> object:
    """The backends aot_hpu_training_backend and aot_hpu_inference_backend are not registered."""
    names = ("aot_hpu_training_backend", "aot_hpu_inference_backend")
    return [name for name in names if name in torch.compiler.list_backends()]


@assume(
    source="torch.compile's contract; " + BRIDGE + "dynamo/compile_backend/backends.py:47-72",
    expected=[True, True],
    means={"hpu-compile": "a compiled module would train otherwise."},
)
def compiled_module_agrees() -> object:
    """A compiled module has the results and gradients of the module itself."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).to("hpu")
    inputs = torch.randn(3, 4).to("hpu")
    expected = plain(inputs)
    expected.sum().backward()
    weight: Any = plain[0].weight
    gradient = weight.grad.cpu()
    plain.zero_grad()
    result = _compile(plain)(inputs)
    result.sum().backward()
    same = torch.allclose(result.detach().cpu(), expected.detach().cpu(), atol=1e-2)
    return [same, torch.allclose(weight.grad.cpu(), gradient, atol=1e-2)]


@assume(
    source=BRIDGE + "no limit of its own; torch's defaults apply",
    expected=AtLeast(1),
    means={"hpu-compile": "its option for the limit of recompilations would have no effect."},
)
def new_shape_recompiles() -> object:
    """With dynamic=False a new shape is compiled again."""
    from torch._dynamo.utils import counters

    compiled = _compile(torch.nn.Linear(4, 2).to("hpu"), dynamic=False)
    compiled(torch.ones(3, 4, device="hpu"))
    before = counters["stats"]["unique_graphs"]
    compiled(torch.ones(5, 4, device="hpu"))
    return counters["stats"]["unique_graphs"] - before


@assume(
    source="vllm-gaudi vllm_gaudi/utils.py:265-285, options force_static_compile",
    expected=True,
    releases=">=1.22",
    means={"hpu-compile": "its option `static` would be refused."},
)
def static_option_is_accepted() -> object:
    """The option force_static_compile is accepted."""
    compiled = _compile(torch.nn.Linear(4, 2).to("hpu"), options={"force_static_compile": True})
    return compiled(torch.ones(3, 4, device="hpu")).shape == (3, 2)


@assume(
    source=BRIDGE + "dynamo/compile_backend/config.py",
    expected=["keep_input_mutations", "use_eager_fallback"],
    means={"hpu-compile": "options of the bridge's compiler would have other names."},
)
def compiler_config_names() -> object:
    """`dynamo.compile_backend.config` has use_eager_fallback and keep_input_mutations."""
    config = module("dynamo.compile_backend.config")
    return [name for name in ("keep_input_mutations", "use_eager_fallback") if hasattr(config, name)]


@assume(
    source=BRIDGE + "dynamo, DeviceInterface for hpu",
    expected=True,
    means={"hpu-compile": "torch's compiler would not know the device, and break graphs at its functions."},
)
def device_interface_is_registered() -> object:
    """torch's compiler has a device interface for hpu."""
    from torch._dynamo.device_interface import get_interface_for_device

    bridge.load()
    return error_of(lambda: get_interface_for_device("hpu")) == "no error"


@assume(
    source=BRIDGE + "dynamo/compile_backend/shared_layer.py:136-151,176-207",
    expected=True,
    means={"hpu-compile": "data-dependent operators would end a compiled graph with an error."},
)
def nonzero_runs_in_a_compiled_function() -> object:
    """A compiled function with `nonzero` gives the right result."""

    def count(tensor: Any) -> Any:
        return (tensor * 2).nonzero().shape[0]

    return _compile(count)(torch.tensor([0.0, 1.0, 2.0]).to("hpu")) == 2  # noqa: PLR2004 - two of three.


@assume(
    source="Intel's Runtime flags; Theory of Operations: inductor is not for HPU",
    expected=Contains("Error"),
    means={"hpu-compile": "its check of the backend would refuse one that works."},
)
def inductor_is_refused() -> object:
    """The backend inductor fails on hpu tensors."""
    compiled: Any = torch.compile(torch.nn.Linear(2, 2).to("hpu"), backend="inductor")
    return error_of(lambda: compiled(torch.ones(1, 2, device="hpu")).cpu())


def _compile(target: Any, **options: Any) -> Any:
    return torch.compile(target, backend="hpu_backend", **options)
