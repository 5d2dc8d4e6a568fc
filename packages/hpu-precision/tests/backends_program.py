"""Program of test_backends.py: apply op lists on a simulated device and print the effects as JSON.

Usage: `backends_program.py RELEASE`.
"""

import json
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import hpu_sim
from hpu_precision import HPUPrecisionPlugin

BF16 = ["linear", "matmul", "mm", "bmm", "mul", "relu", "scaled_dot_product_attention"]
FP32 = ["cross_entropy", "div", "layer_norm", "log"]

# A reference from before the plugin, as a model that is imported early has.
early_linear = functional.linear


def dtypes(plugin: HPUPrecisionPlugin) -> dict[str, torch.Tensor]:
    """Return an output of each kind of operator."""
    data = torch.rand(4, 4, device="hpu")
    low = data.bfloat16()
    layer, norm = nn.Linear(4, 4).to("hpu"), nn.LayerNorm(4).to("hpu")
    attention = nn.MultiheadAttention(4, 2, batch_first=True).to("hpu")
    labels = torch.zeros(4, dtype=torch.long, device="hpu")
    written = data.clone()
    with plugin.forward_context():
        results = {
            "a function of the bf16 list": functional.linear(data, data),
            "a layer of the bf16 list": layer(data),
            "a method of the bf16 list": data.mul(data),
            "a Python operator of the bf16 list": data @ data,
            "an op that is not in the bridge's lists": functional.relu(data),
            "a function imported before the plugin": early_linear(data, data),
            "a layer made of listed ops": attention(data[None], data[None], data[None], need_weights=False)[0],
            "a function of the fp32 list": functional.cross_entropy(low, labels),
            "a Python operator of the fp32 list": low / low,
            "a layer of the fp32 list": norm(low),
            "an op of no list, from float32": data.sigmoid(),
            "an op of no list, from bfloat16": low.sigmoid(),
            "an op of the default lists only": data.softmax(-1),
            "an op with inputs of two dtypes": torch.cat([data, low]),
            "an op with inputs of one dtype": torch.cat([low, low]),
            "an in-place op": written.add_(low),
        }
    layer(data).sum().backward()
    assert layer.weight.grad is not None
    return {**results, "the gradient of a parameter": layer.weight.grad, "outside the step": layer(data)}


def loss_and_gradients(plugin: HPUPrecisionPlugin) -> list[float]:
    """Return the loss of a small network and the sum of its absolute gradients."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4)).to("hpu")
    data, labels = torch.rand(32, 8).to("hpu"), (torch.arange(32) % 4).to("hpu")
    with plugin.forward_context():
        loss = functional.cross_entropy(network(data), labels)
    loss.backward()
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    return [loss.item(), torch.stack([gradient.abs().sum() for gradient in gradients]).sum().item()]


def second_lists(first: HPUPrecisionPlugin) -> Any:
    """Return the dtypes of `linear` in a second plugin with other lists and in the first one, or the error."""
    second = HPUPrecisionPlugin("bf16-mixed", bf16_ops=["relu"], fp32_ops=["linear"])
    try:
        return [_dtype_of_linear(second), _dtype_of_linear(first)]
    except RuntimeError as error:
        return str(error)


def _dtype_of_linear(plugin: HPUPrecisionPlugin) -> str:
    data = torch.rand(4, 4, device="hpu")
    with plugin.forward_context():
        return str(functional.linear(data, data).dtype)


def main(release: str) -> None:
    """Create the plugin, and print the results."""
    hpu_sim.activate(release=release)
    plugin = HPUPrecisionPlugin(precision=16, bf16_ops=BF16, fp32_ops=FP32)
    found: dict[str, Any] = {"dtypes": {kind: str(output.dtype) for kind, output in dtypes(plugin).items()}}
    hmp, _ = plugin._resolved.autocast._backend  # type: ignore[misc, union-attr] # Mixed precision has it.
    found |= {
        "loss and gradients": loss_and_gradients(plugin),
        "hmp": hmp is not None,
        "second lists": second_lists(plugin),
    }
    print(json.dumps(found))  # noqa: T201 - the test parses it


if __name__ == "__main__":
    main(*sys.argv[1:])
