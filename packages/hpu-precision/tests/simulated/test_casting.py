"""Inside a step and outside of it, by whatever the release offers."""

import contextlib
import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hpu_core import bridge
from hpu_precision import HPUPrecisionPlugin, _hmp, _kernels, default_op_lists
from hpu_precision._casting import Casting


@pytest.fixture
def plugin() -> HPUPrecisionPlugin:
    """A plugin with the default lists."""
    return HPUPrecisionPlugin("bf16-mixed")


@pytest.fixture
def data() -> torch.Tensor:
    """A square matrix on the device, (4, 4)."""
    return torch.linspace(0.1, 0.9, 16).reshape(4, 4).to("hpu")


def _type(data: torch.Tensor) -> torch.dtype:
    return functional.linear(data, data).dtype


def test_hmp_casts_where_the_release_has_it(plugin: HPUPrecisionPlugin, has_hmp: bool) -> None:
    """HMP is called on the releases that have it, with these lists."""
    with plugin.forward_context():
        pass

    assert _hmp._State.lists == (default_op_lists() if has_hmp else None)


def test_by_default_the_bridge_casts_alone(plugin: HPUPrecisionPlugin, has_hmp: bool) -> None:
    """Without HMP, default lists need no kernels of ours."""
    with plugin.forward_context():
        kernels = _kernels._State.rules

    assert (kernels is None) is not has_hmp


def test_steps_nest(plugin: HPUPrecisionPlugin, data: torch.Tensor) -> None:
    """After an inner step the outer one goes on, and after it nothing is cast."""
    types = []
    with plugin.forward_context():
        with plugin.forward_context():
            types.append(_type(data))
        types.append(_type(data))
    types.append(_type(data))

    assert types == [torch.bfloat16, torch.bfloat16, torch.float32]


def test_the_host_is_left_alone(plugin: HPUPrecisionPlugin) -> None:
    """Tensors on the CPU are not cast."""
    data = torch.ones(4, 4)
    with plugin.forward_context():
        assert _type(data) == torch.float32


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_whole_numbers_are_left_alone(plugin: HPUPrecisionPlugin, dtype: torch.dtype) -> None:
    """Only floating point numbers have a lower precision."""
    data = torch.ones(4, 4, device="hpu").to(dtype)
    with plugin.forward_context():
        assert (data * data).dtype == dtype


@pytest.mark.parametrize("verbose", [False, True], ids=["quiet", "verbose"])
def test_of_norms_only_the_input_is_cast(verbose: bool, data: torch.Tensor) -> None:
    """Weights and statistics keep their digits, by the bridge, by HMP and by our kernels."""
    # Not a number that bf16 has.
    weight = torch.full((4,), 1.001, device="hpu")
    with HPUPrecisionPlugin("bf16-mixed", verbose=verbose).forward_context():
        inside = functional.layer_norm(data, (4,), weight)

    assert torch.equal(inside, functional.layer_norm(data.bfloat16(), (4,), weight))
    assert not torch.equal(inside, functional.layer_norm(data.bfloat16(), (4,), weight.bfloat16()))


@pytest.mark.parametrize("verbose", [False, True], ids=["quiet", "verbose"])
def test_float64_is_left_alone(verbose: bool, data: torch.Tensor) -> None:
    """What has more digits than float32 was given them on purpose."""
    with HPUPrecisionPlugin("bf16-mixed", verbose=verbose).forward_context():
        assert _type(data.double()) == torch.float64


@pytest.mark.parametrize("module", [nn.LSTM(4, 4, batch_first=True), nn.MultiheadAttention(4, 2, batch_first=True)])
def test_layers_made_of_ops_train(plugin: HPUPrecisionPlugin, module: nn.Module, data: torch.Tensor) -> None:
    """Recurrent layers and attention run in mixed precision, forward and backward."""
    layer = copy.deepcopy(module).to("hpu")
    arguments = (data[None],) if isinstance(layer, nn.LSTM) else (data[None],) * 3
    with plugin.forward_context():
        output = layer(*arguments)[0]
    output.float().sum().backward()

    assert {parameter.grad.dtype for parameter in layer.parameters() if parameter.grad is not None} == {torch.float32}


@pytest.mark.parametrize("how", ["by torch", "by context_fn"])
def test_activation_checkpointing_repeats_the_casts(how: str, plugin: HPUPrecisionPlugin, data: torch.Tensor) -> None:
    """A block that is computed again in the backward pass has the same types, and the same gradient."""
    if how == "by torch" and not hasattr(torch, "get_autocast_dtype"):
        pytest.skip("Requires: torch 2.4, which repeats hpu's autocast")
    if "context_fn" not in inspect.signature(checkpoint).parameters:
        pytest.skip("Requires: torch 2.1, which has context_fn")
    weight = data.clone().requires_grad_()
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    if how == "by context_fn":
        options["context_fn"] = lambda: (contextlib.nullcontext(), plugin.forward_context())

    def block(inputs: torch.Tensor) -> torch.Tensor:
        return functional.linear(inputs, weight).softmax(-1)

    gradients: list[torch.Tensor] = []
    for again in (False, True):
        with plugin.forward_context():
            output = checkpoint(block, data, **options) if again else block(data)
        gradients += torch.autograd.grad((output.float() ** 2).sum(), weight)

    assert torch.equal(*gradients)


def test_a_plugin_can_be_sent_to_another_process(plugin: HPUPrecisionPlugin, data: torch.Tensor) -> None:
    """What a plugin knows of its process stays there; a copy casts the same."""
    with plugin.forward_context():
        pass
    twin = pickle.loads(pickle.dumps(plugin))  # noqa: S301 - what was made a line before.

    assert twin._choice.casting._way is None
    with twin.forward_context():
        assert _type(data) == torch.bfloat16


def _messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if " runs in " in record.message]


def test_verbose_tells_each_op_once(caplog: pytest.LogCaptureFixture, data: torch.Tensor) -> None:
    """Ops are told by their name in the lists, with the type they run in and the list that says so."""
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


def test_quiet_tells_nothing(caplog: pytest.LogCaptureFixture, plugin: HPUPrecisionPlugin, data: torch.Tensor) -> None:
    """Unless asked for, no op is told."""
    with caplog.at_level("INFO"), plugin.forward_context():
        functional.linear(data, data)

    assert _messages(caplog) == []


@pytest.mark.usefixtures("needs_autocast")
def test_putting_lists_in_place_is_silent(recwarn: pytest.WarningsRecorder, data: torch.Tensor) -> None:
    """The warning that torch gives for a kernel in another's place is for those who did not mean it."""
    with HPUPrecisionPlugin("bf16-mixed", bf16_ops=["linear", "relu"]).forward_context():
        functional.linear(data, data)

    assert not recwarn.list


@pytest.mark.usefixtures("needs_autocast")
def test_the_bridges_own_autocast_comes_back(plugin: HPUPrecisionPlugin, data: torch.Tensor) -> None:
    """After a plugin with lists, one without runs as if there had been none."""
    with HPUPrecisionPlugin("bf16-mixed", fp32_ops=["linear"]).forward_context():
        with_lists = _type(data)
    with plugin.forward_context():
        without = _type(data)

    assert (with_lists, without) == (torch.float32, torch.bfloat16)


@pytest.mark.skipif(not hasattr(torch, "get_autocast_dtype"), reason="Requires: torch 2.4, whose hpu may have float16")
@pytest.mark.usefixtures("needs_autocast")
def test_the_users_own_autocast_region_has_its_type(data: torch.Tensor) -> None:
    """Inside a region of another type, the lists of the plugin hold with that type."""
    with (
        HPUPrecisionPlugin("bf16-mixed", bf16_ops=["linear"]).forward_context(),
        torch.autocast("hpu", dtype=torch.float16),
    ):
        assert _type(data) == torch.float16


@pytest.mark.usefixtures("needs_autocast")
def test_a_disabled_region_casts_nothing(data: torch.Tensor) -> None:
    """`torch.autocast("hpu", enabled=False)` inside a step is heeded."""
    with (
        HPUPrecisionPlugin("bf16-mixed", bf16_ops=["linear"]).forward_context(),
        torch.autocast("hpu", enabled=False),
    ):
        assert _type(data) == torch.float32


@pytest.mark.usefixtures("needs_autocast")
def test_level_two_runs_matrices_low_and_the_rest_full(data: torch.Tensor) -> None:
    """At HMP's level O2, `mm` runs in bf16, and `linear`, `relu` and sums in float32."""
    low = data.bfloat16()
    with HPUPrecisionPlugin("bf16-mixed", opt_level="O2").forward_context():
        types = [torch.mm(data, data).dtype, _type(low), functional.relu(low).dtype, (low + low).dtype]

    assert types == [torch.bfloat16, torch.float32, torch.float32, torch.float32]


def test_the_first_generation_refuses_float16_at_the_latest_when_it_trains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the generation was not known before, the bridge's word counts."""
    casting = Casting(default_op_lists(), torch.float16, verbose=False, tell=print)
    monkeypatch.setattr(bridge, "is_fp16_supported", lambda: False)

    with pytest.raises(NotImplementedError, match="needs Gaudi 2 or newer: use precision='bf16-mixed'"), casting.on():
        pass
