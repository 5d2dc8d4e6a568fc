"""Uses op lists on a simulated card and prints, as JSON, what they did: `ways.py RELEASE loaded|not loaded`.

The second argument says whether the bridge is loaded when the plugin is made.
"""

import json
import os
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import hpu_sim
from hpu_precision import HPUPrecisionPlugin

BF16 = ["linear", "matmul", "mm", "bmm", "mul", "relu", "scaled_dot_product_attention"]
FP32 = ["cross_entropy", "div", "layer_norm", "log"]

# As a model that was imported before.
early_linear = functional.linear


def dtypes(plugin: HPUPrecisionPlugin) -> dict[str, torch.Tensor]:
    """Return a result of each kind."""
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
            "an operator sign of the bf16 list": data @ data,
            "an op that the bridge's lists do not know": functional.relu(data),
            "a function that was there before the plugin": early_linear(data, data),
            "a layer made of listed ops": attention(data[None], data[None], data[None], need_weights=False)[0],
            "a function of the fp32 list": functional.cross_entropy(low, labels),
            "an operator sign of the fp32 list": low / low,
            "a layer of the fp32 list": norm(low),
            "an op of no list, from float32": data.sigmoid(),
            "an op of no list, from bfloat16": low.sigmoid(),
            "an op that the default lists have, of no list": data.softmax(-1),
            "an op with inputs of two types": torch.cat([data, low]),
            "an op with inputs of one type": torch.cat([low, low]),
            "an op that writes to a tensor": written.add_(low),
        }
    layer(data).sum().backward()
    assert layer.weight.grad is not None
    return {**results, "the gradient of a parameter": layer.weight.grad, "outside the step": layer(data)}


def numbers(plugin: HPUPrecisionPlugin) -> list[float]:
    """Return the loss of a small network and a sum of its gradients."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4)).to("hpu")
    data, labels = torch.rand(32, 8).to("hpu"), (torch.arange(32) % 4).to("hpu")
    with plugin.forward_context():
        loss = functional.cross_entropy(network(data), labels)
    loss.backward()
    gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    return [loss.item(), torch.stack([gradient.abs().sum() for gradient in gradients]).sum().item()]


def second_lists(first: HPUPrecisionPlugin) -> Any:
    """Return what comes of a second plugin with other lists: types of `linear` by both, or the error."""
    second = HPUPrecisionPlugin("bf16-mixed", bf16_ops=["relu"], fp32_ops=["linear"])
    try:
        return [_type_of_linear(second), _type_of_linear(first)]
    except RuntimeError as error:
        return str(error)


def _way(plugin: Any) -> Any:
    return plugin._choice.casting._way


def _type_of_linear(plugin: HPUPrecisionPlugin) -> str:
    data = torch.rand(4, 4, device="hpu")
    with plugin.forward_context():
        return str(functional.linear(data, data).dtype)


def main(release: str, when: str) -> None:
    """Make the plugin and the card in the order asked for, and print what was found."""
    if when == "loaded":
        hpu_sim.activate(release=release)
    plugin = HPUPrecisionPlugin(precision=16, bf16_ops=BF16, fp32_ops=FP32)
    files = [value for name, value in os.environ.items() if name.endswith(("OPS_LIST", "LOWER_LIST", "FP32_LIST"))]
    if when == "not loaded":
        hpu_sim.activate(release=release)
    found: dict[str, Any] = {"dtypes": {what: str(result.dtype) for what, result in dtypes(plugin).items()}}
    way = _way(plugin)
    sys.stderr.write("the first lists have been used\n")
    found |= {
        "numbers": numbers(plugin),
        "hmp": way.hmp is not None,
        "alone": way.rules.alone,
        "ruled": sorted(name for name, _ in way.rules.policies),
        "files": files,
        "second lists": second_lists(plugin),
    }
    print(json.dumps(found))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(*sys.argv[1:])
