"""Tests of casts inside and outside a step, with the backend of the release."""

import contextlib
import inspect
import pickle
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hpu_core import bridge
from hpu_precision import HPUPrecisionPlugin, _kernels, default_op_lists
from hpu_precision._autocast import AutocastPolicy


@pytest.fixture
def plugin() -> HPUPrecisionPlugin:
    """Return a plugin with the default lists."""
    return HPUPrecisionPlugin("bf16-mixed")


@pytest.fixture
def data() -> torch.Tensor:
    """Return a matrix on the device, of shape (4, 4)."""
    return torch.linspace(0.1, 0.9, 16).reshape(4, 4).to("hpu")


def _linear_dtype(data: torch.Tensor) -> torch.dtype:
    return functional.linear(data, data).dtype


def test_default_lists_need_no_kernels_without_hmp(plugin: HPUPrecisionPlugin, has_hmp: bool) -> None:
    """The bridge has the default lists itself."""
    with plugin.forward_context():
        rules = _kernels._State.rules

    assert rules is not None
    assert rules.replaces_bridge is has_hmp
    assert (("linear", "lower") in rules.policies) is has_hmp


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_integer_and_bool_tensors_are_not_cast(plugin: HPUPrecisionPlugin, dtype: torch.dtype) -> None:
    data = torch.ones(4, 4, device="hpu").to(dtype)
    with plugin.forward_context():
        assert (data * data).dtype == dtype


@pytest.mark.parametrize("verbose", [False, True], ids=["quiet", "verbose"])
def test_only_the_input_of_norms_is_cast(verbose: bool, data: torch.Tensor) -> None:
    """Weights keep their dtype with the bridge, with HMP and with our kernels."""
    # bfloat16 cannot represent the value.
    weight = torch.full((4,), 1.001, device="hpu")
    with HPUPrecisionPlugin("bf16-mixed", verbose=verbose).forward_context():
        inside = functional.layer_norm(data, (4,), weight)

    assert torch.equal(inside, functional.layer_norm(data.bfloat16(), (4,), weight))
    assert not torch.equal(inside, functional.layer_norm(data.bfloat16(), (4,), weight.bfloat16()))


@pytest.mark.parametrize("verbose", [False, True], ids=["quiet", "verbose"])
def test_float64_tensors_are_not_cast(verbose: bool, data: torch.Tensor) -> None:
    with HPUPrecisionPlugin("bf16-mixed", verbose=verbose).forward_context():
        assert _linear_dtype(data.double()) == torch.float64


@pytest.mark.parametrize("mode", ["torch", "context_fn"])
def test_activation_checkpointing_repeats_the_casts(mode: str, plugin: HPUPrecisionPlugin, data: torch.Tensor) -> None:
    """The gradient equals that without checkpointing."""
    if mode == "torch" and not hasattr(torch, "get_autocast_dtype"):
        pytest.skip("Requires: torch 2.4, which restores hpu's autocast state")
    if "context_fn" not in inspect.signature(checkpoint).parameters:
        pytest.skip("Requires: torch 2.1 for context_fn")
    weight = data.clone().requires_grad_()
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    if mode == "context_fn":
        options["context_fn"] = lambda: (contextlib.nullcontext(), plugin.forward_context())

    def block(inputs: torch.Tensor) -> torch.Tensor:
        return functional.linear(inputs, weight).softmax(-1)

    gradients: list[torch.Tensor] = []
    for checkpointed in (False, True):
        with plugin.forward_context():
            output = checkpoint(block, data, **options) if checkpointed else block(data)
        gradients += torch.autograd.grad((output.float() ** 2).sum(), weight)

    assert torch.equal(*gradients)


def test_plugin_can_be_pickled(plugin: HPUPrecisionPlugin, data: torch.Tensor) -> None:
    """The copy selects its own backend, as in a spawned process."""
    with plugin.forward_context():
        pass
    unpickled = pickle.loads(pickle.dumps(plugin))  # noqa: S301 - pickled in the same line.

    assert unpickled._resolved.autocast._backend is None
    with unpickled.forward_context():
        assert _linear_dtype(data) == torch.bfloat16


def _messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if " runs in " in record.message]


def test_verbose_logs_each_op_once(caplog: pytest.LogCaptureFixture, data: torch.Tensor) -> None:
    """The message has the op's name in the lists, its dtype and the list."""
    plugin = HPUPrecisionPlugin("bf16-mixed", verbose=True)
    with caplog.at_level("INFO"), plugin.forward_context():
        for _ in range(3):
            (functional.linear(data, data) / data).add(data)

    assert set(_messages(caplog)) == {
        "linear runs in bfloat16 (lower-precision list)",
        "div runs in float32 (float32 list)",
        "add runs in float32 (widest of its inputs)",
    }
    assert len(_messages(caplog)) == 3


@pytest.mark.usefixtures("needs_autocast")
def test_default_plugin_restores_the_bridges_kernels(plugin: HPUPrecisionPlugin, data: torch.Tensor) -> None:
    """The lists of a plugin that ran before have no effect."""
    with HPUPrecisionPlugin("bf16-mixed", fp32_ops=["linear"]).forward_context():
        with_lists = _linear_dtype(data)
    with plugin.forward_context():
        without = _linear_dtype(data)

    assert (with_lists, without) == (torch.float32, torch.bfloat16)


@pytest.mark.skipif(not hasattr(torch, "get_autocast_dtype"), reason="Requires: torch 2.4 for float16 autocast on hpu")
@pytest.mark.usefixtures("needs_autocast")
def test_nested_autocast_with_another_dtype(data: torch.Tensor) -> None:
    """The plugin's lists apply with the dtype of the user's own `torch.autocast`."""
    with (
        HPUPrecisionPlugin("bf16-mixed", bf16_ops=["linear"]).forward_context(),
        torch.autocast("hpu", dtype=torch.float16),
    ):
        assert _linear_dtype(data) == torch.float16


def test_float16_is_rejected_in_training_on_the_first_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generation is read from the bridge if it was unknown when the plugin was created."""
    autocast = AutocastPolicy(default_op_lists(), torch.float16, verbose=False, log=print)
    monkeypatch.setattr(bridge, "is_fp16_supported", lambda: False)

    with (
        pytest.raises(NotImplementedError, match="needs Gaudi 2 or newer: use precision='bf16-mixed'"),
        autocast.enabled(),
    ):
        pass
