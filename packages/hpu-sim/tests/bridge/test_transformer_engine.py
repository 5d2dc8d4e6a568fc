"""Transformer engine: linear layers in float8."""

from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any

import pytest
import torch
from habana_frameworks.torch.hpex.experimental import transformer_engine as te
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

_HYBRID = te.recipe.DelayedScaling(fp8_format=te.recipe.Format.HYBRID)


@pytest.fixture
def layer() -> Any:
    """Return a small layer on the device."""
    torch.manual_seed(8)
    return te.Linear(16, 8)


def _rows() -> torch.Tensor:
    return torch.randn(6, 16, device="hpu")


def _step(layer: Any, rows: torch.Tensor, recipe: Any = _HYBRID, **options: Any) -> torch.Tensor:
    with te.fp8_autocast(enabled=True, fp8_recipe=recipe, **options):
        output: torch.Tensor = layer(rows)
    return output


def _scaling(layer: Any, tensor: str = "input") -> dict[str, Any]:
    """Return the saved scaling of a tensor: scale, amax_history, fp8_max and dtype."""
    state = layer.state_dict()["_extra_state"]
    return dict(torch.load(io.BytesIO(bytes(state.tolist())), weights_only=True)[tensor])


def _rounded(tensor: torch.Tensor, scale: Any) -> torch.Tensor:
    rounded: torch.Tensor = (tensor * scale).clamp(-240, 240).to(torch.float8_e4m3fn).float() / scale
    return rounded


def test_outside_of_fp8_autocast_the_layer_is_linear(layer: Any) -> None:
    rows = _rows()
    expected = functional.linear(rows, layer.weight, layer.bias)

    assert torch.equal(layer(rows), expected)
    with te.fp8_autocast():
        assert torch.equal(layer(rows), expected)


def test_the_parameters_are_on_the_device(layer: Any) -> None:
    assert (layer.weight.device.type, layer.weight.dtype, layer.weight.shape) == ("hpu", torch.float32, (8, 16))
    assert te.Linear(2, 2, params_dtype=torch.bfloat16).weight.dtype == torch.bfloat16
    assert te.Linear(2, 2, bias=False).bias is None
    assert te.Linear(2, 2, init_method=torch.nn.init.zeros_).weight.count_nonzero() == 0
    assert "in_features=16, out_features=8, bias=True" in repr(layer)
    returning, rows = te.Linear(16, 8, return_bias=True), _rows()
    output, bias = returning(rows)
    assert bias is returning.bias
    assert torch.equal(output, functional.linear(rows, returning.weight))


@pytest.mark.needs_torch("2.1", "float8")
def test_a_result_is_that_of_the_rounded_numbers(layer: Any) -> None:
    """The scale comes from the amax of the step before, unless that was 0; numbers beyond it are clamped."""
    rows = _rows()
    _step(layer, torch.zeros_like(rows))
    assert float(_scaling(layer)["scale"]) == 1
    _step(layer, rows)

    for factor in (1, 1e6):
        inputs, weight = (
            _rounded(tensor * by, 240 / tensor.abs().max()) for tensor, by in ((rows, factor), (layer.weight, 1))
        )
        torch.testing.assert_close(_step(layer, rows * factor), inputs @ weight.T + layer.bias)


@pytest.mark.needs_torch("2.1", "float8")
def test_the_first_step_is_not_scaled(layer: Any) -> None:
    """Scaling is delayed: the first step clamps large inputs, and the second one scales them down."""
    rows = _rows() * 1e4

    first, second = _step(layer, rows), _step(layer, rows)

    clamped = _rounded(rows, 1) @ _rounded(layer.weight, 1).T + layer.bias
    torch.testing.assert_close(first, clamped)
    assert first.abs().max() < 240 * 16
    torch.testing.assert_close(second, layer(rows), atol=2e3, rtol=0.1)


@pytest.mark.needs_torch("2.1", "float8")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_are_rounded(dtype: torch.dtype, layer: Any) -> None:
    """Those of input, weight and bias are close to the exact ones. The output has the dtype of autocast."""
    rows = _rows().requires_grad_()
    for _ in range(2):
        layer.zero_grad()
        rows.grad = None
        with torch.autocast("hpu", dtype=dtype, enabled=dtype != torch.float32):
            output = _step(layer, rows)
        assert output.dtype == dtype
        output.float().pow(2).sum().backward()
    exact = torch.nn.Linear(16, 8).to("hpu")
    exact.load_state_dict({"weight": layer.weight, "bias": layer.bias})
    plain = rows.detach().clone().requires_grad_()
    exact(plain).pow(2).sum().backward()

    pairs: list[Any] = [(rows, plain), (layer.weight, exact.weight), (layer.bias, exact.bias)]
    for mine, theirs in pairs:
        assert mine.grad.dtype == torch.float32
        assert not torch.equal(mine.grad, theirs.grad)
        assert functional.cosine_similarity(mine.grad.flatten(), theirs.grad.flatten(), dim=0) > 0.99


@pytest.mark.needs_torch("2.1", "float8")
def test_the_format_of_the_forward_pass_is_the_recipes(layer: Any) -> None:
    """E5M2 has a larger range and fewer digits."""
    _step(layer, _rows(), te.recipe.DelayedScaling())
    other = te.Linear(16, 8)
    _step(other, _rows())

    assert (_scaling(layer)["dtype"], _scaling(layer)["fp8_max"]) == ("float8_e5m2", 57344)
    assert (_scaling(other)["dtype"], _scaling(other)["fp8_max"]) == ("float8_e4m3fn", 240)
    assert _scaling(other, "grad_output")["dtype"] == "float8_e5m2"


@pytest.mark.needs_torch("2.1", "float8")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"amax_compute_algo": "most_recent"}, 240 / 1),
        ({"amax_compute_algo": "max", "amax_history_len": 3}, 240 / 4),
        ({"amax_compute_algo": lambda history: history.min(), "amax_history_len": 2}, 240 / 1),
        ({"margin": 2}, 240 / 1 / 4),
        ({"scaling_factor_compute_algo": lambda amax, scale, fp8_max, recipe: amax * 0 + 7}, 7),
    ],
    ids=["most recent", "max", "function", "margin", "scale"],
)
def test_the_recipe_sets_the_scale(options: dict[str, Any], expected: float, layer: Any) -> None:
    """The amax of the inputs is 4, then 2, then 1."""
    recipe = te.recipe.DelayedScaling(fp8_format=te.recipe.Format.HYBRID, **options)

    for largest in (4.0, 2.0, 1.0):
        _step(layer, torch.full((2, 16), largest, device="hpu"), recipe)

    assert float(_scaling(layer)["scale"]) == pytest.approx(expected)


@pytest.mark.needs_torch("2.1", "float8")
@pytest.mark.parametrize(
    ("options", "interval", "measured"),
    [
        ({}, 1, [4, 2, 1]),
        ({}, 2, [4, 1]),
        ({"force_measurement": False}, 1, [0]),
        ({"force_measurement": True}, 2, [4, 2, 1]),
    ],
)
def test_measurements_follow_the_interval_unless_forced(
    options: dict[str, Any], interval: int, measured: list[float], layer: Any
) -> None:
    """The history has the latest amax first."""
    recipe = te.recipe.DelayedScaling(fp8_format=te.recipe.Format.HYBRID, interval=interval, amax_history_len=9)

    for largest in (1.0, 2.0, 4.0):
        _step(layer, torch.full((2, 16), largest, device="hpu"), recipe, **options)

    assert _scaling(layer)["amax_history"].tolist()[: len(measured)] == measured


@pytest.mark.needs_torch("2.1", "float8")
def test_a_recomputed_pass_has_the_scale_of_the_first(layer: Any) -> None:
    """Without a measurement, the scale is that of the last measured pass, not the one that the pass has led to."""
    rows = _rows() * 100
    first = _step(layer, rows)
    again = _step(layer, rows, force_measurement=False)

    assert torch.equal(first, again)
    assert not torch.equal(first, _step(layer, rows))


@pytest.mark.needs_torch("2.1", "float8")
@pytest.mark.parametrize("device", ["hpu", "cpu"])
def test_a_state_dict_has_the_scales(device: str, layer: Any) -> None:
    """They are bytes beside the parameters, and may be loaded before the module moves. An empty state has no effect."""
    _step(layer, _rows()).sum().backward()
    _step(layer, _rows())
    other = te.Linear(16, 8, device=device)
    empty = other.state_dict()["_extra_state"]

    other.load_state_dict(layer.state_dict())
    other = other.to("hpu")
    other.set_extra_state(empty)
    other.set_extra_state(None)

    assert (empty.dtype, empty.numel()) == (torch.uint8, 0)
    assert layer.state_dict()["_extra_state"].dtype == torch.uint8
    assert list(layer.state_dict()) == ["weight", "bias", "_extra_state"]
    rows, twin = _rows(), copy.deepcopy(other)
    assert torch.equal(_step(other, rows), _step(layer, rows))
    _step(other, _rows() * 100)
    # A copy has scales of its own, which averaged models need.
    assert _scaling(twin)["scale"] != _scaling(other)["scale"]


@pytest.mark.needs_torch("2.1", "float8")
def test_the_weight_can_be_an_argument() -> None:
    layer = te.Linear(16, 8, skip_weight_param_allocation=True)
    weight = torch.randn(8, 16, device="hpu")
    rows = _rows()

    assert layer.weight is None
    assert torch.equal(layer(rows, weight), functional.linear(rows, weight, layer.bias))
    assert torch.isfinite(_step(lambda x: layer(x, weight), rows)).all()
    with pytest.raises(TypeError, match="`weight` must be a tensor"):
        layer(rows)


@pytest.mark.parametrize("options", [{"tp_size": 2}, {"sequence_parallel": True}, {"tp_group": object()}])
def test_tensor_parallelism_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match="the simulated transformer engine has no tensor parallelism"):
        te.Linear(2, 2, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"override_linear_precision": (True, False, False)}, "`override_linear_precision` must be .* got"),
        ({"interval": 0}, "`interval` and `amax_history_len` must be at least 1, got 0 and 1"),
        ({"amax_history_len": 0}, "`interval` and `amax_history_len` must be at least 1, got 1 and 0"),
    ],
)
def test_an_invalid_recipe_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        te.recipe.DelayedScaling(**options)


@pytest.mark.needs_torch("2.1", "float8")
def test_the_context_restores_the_state(layer: Any) -> None:
    state = te.fp8.FP8GlobalStateManager
    with te.fp8_autocast(enabled=True, fp8_recipe=_HYBRID):
        with te.fp8_autocast(enabled=False):
            assert not state.is_fp8_enabled()
        assert state.is_fp8_enabled()
        assert state.recipe is _HYBRID
    with pytest.raises(KeyError), te.fp8_autocast(enabled=True):
        raise KeyError

    assert not state.is_fp8_enabled()


@pytest.mark.needs_torch("2.1", "float8")
@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ("GAUDI", "(False, 'FP8 not supported on Gaudi, Gaudi2 or higher required') FP8 not supported on Gaudi, "),
        ("GAUDI2", "(True, '') 240.0"),
        ("GAUDI3", "(True, '') 448.0"),
    ],
)
def test_float8_depends_on_the_generation(generation: str, expected: str, output_on: Callable[..., str]) -> None:
    """The query acquires a device. E4M3 ends higher on Gaudi 3."""
    program = """
    import torch
    import habana_frameworks.torch.hpex.experimental.transformer_engine as te
    with te.fp8_autocast():
        pass
    before = torch.hpu.is_initialized()
    available = te.fp8.is_fp8_available()
    print(available == te.fp8.FP8GlobalStateManager.is_fp8_available(), before, torch.hpu.is_initialized())
    layer = te.Linear(16, 16, bias=False, init_method=torch.nn.init.eye_)
    try:
        with te.fp8_autocast(enabled=True, fp8_recipe=te.recipe.DelayedScaling(fp8_format=te.recipe.Format.HYBRID)):
            print(available, layer(torch.full((1, 16), 1000.0, device="hpu")).max().item())
    except AssertionError as error:
        print(available, error)
    """

    output = output_on(program, HPU_SIM_DEVICES="1", HPU_SIM_GENERATION=generation)

    assert output.startswith(f"True False True\n{expected}")


@pytest.mark.needs_torch("2.1", "float8")
def test_ranks_share_the_amax(output_on: Callable[..., str]) -> None:
    """Those of inputs and weights after the forward pass, and of gradients after the backward pass."""
    program = """
    import io, torch, torch.distributed as dist
    import habana_frameworks.torch.hpex.experimental.transformer_engine as te
    dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
    reduced = []
    original = dist.all_reduce
    def all_reduce(tensor, **options):
        reduced.append(tensor.tolist())
        original(tensor, **options)
        tensor.fill_(8.0)  # the amax of another rank
    dist.all_reduce = all_reduce
    for reduce_amax in (True, False):
        layer = te.Linear(4, 2, init_method=torch.nn.init.ones_)
        recipe = te.recipe.DelayedScaling(fp8_format=te.recipe.Format.HYBRID, reduce_amax=reduce_amax)
        with te.fp8_autocast(enabled=True, fp8_recipe=recipe):
            output = layer(torch.full((1, 4), 2.0, device="hpu"))
        output.backward(torch.full((1, 2), 3.0, device="hpu"))
        state = torch.load(io.BytesIO(bytes(layer.get_extra_state().tolist())), weights_only=True)
        print(reduced, state["input"]["scale"].item(), state["grad_output"]["amax_history"].tolist())
    dist.destroy_process_group()
    """

    output = output_on(program, HPU_SIM_DEVICES="1", PT_HPU_LAZY_MODE="0")

    assert output == "[[2.0, 1.0], [3.0]] 30.0 [8.0]\n[[2.0, 1.0], [3.0]] 120.0 [3.0]"
