"""Tests of batch norm with parameters and statistics of different dtypes, which the CPU refuses."""

import pytest
import torch

WEIGHT, BIAS = [0.5, 1.5, 2.0, 1.0], [0.0, 1.0, -1.0, 0.5]


def _run(device: str, dtype: torch.dtype, parameters: torch.dtype, *, training: bool) -> dict[str, torch.Tensor]:
    """Return the output, the statistics and the gradients."""
    norm = torch.nn.BatchNorm1d(4).to(device).train(training)
    norm.weight = torch.nn.Parameter(torch.tensor(WEIGHT, dtype=parameters, device=device))
    norm.bias = torch.nn.Parameter(torch.tensor(BIAS, dtype=parameters, device=device))
    data = torch.randn(32, 4, generator=torch.Generator().manual_seed(1)).to(dtype).to(device).requires_grad_()
    output = norm(data)
    output.float().square().sum().backward()
    results = {"output": output.detach(), "input gradient": data.grad, **norm.state_dict()}
    gradients = {f"{name} gradient": parameter.grad for name, parameter in norm.named_parameters()}
    return {name: value.cpu() for name, value in {**results, **gradients}.items() if value is not None}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.needs_torch("2.4", "float16 on the CPU"))]
)
def test_parameters_of_low_precision_and_float32_statistics(dtype: torch.dtype, training: bool) -> None:
    """As DeepSpeed leaves them. The numbers are those of float32 parameters, each rounded once."""
    mixed = _run("hpu", dtype, dtype, training=training)
    expected = _run("cpu", dtype, torch.float32, training=training)

    assert mixed["running_mean"].dtype == torch.float32
    assert mixed["weight gradient"].dtype == dtype
    torch.testing.assert_close(
        mixed, {name: value.to(mixed[name].dtype) for name, value in expected.items()}, rtol=0, atol=0
    )


def test_parameters_and_statistics_of_one_dtype_are_those_of_the_cpu() -> None:
    on_device, on_cpu = (_run(device, torch.float32, torch.float32, training=True) for device in ("hpu", "cpu"))

    torch.testing.assert_close(on_device, on_cpu, rtol=0, atol=0)


def test_bias_may_be_absent() -> None:
    data = torch.ones(2, 4, dtype=torch.bfloat16, device="hpu")
    weight = torch.tensor(WEIGHT, dtype=torch.bfloat16, device="hpu")
    mean, variance = torch.zeros(4, device="hpu"), torch.ones(4, device="hpu")

    result = torch.nn.functional.batch_norm(data, mean, variance, weight, eps=1e-12)  # torch 2.10 refuses 0

    assert result.cpu().tolist() == [WEIGHT, WEIGHT]
