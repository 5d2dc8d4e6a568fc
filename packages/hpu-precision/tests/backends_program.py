"""Program of test_backends.py: apply op lists on a simulated device and print the effects as JSON.

Usage: `backends_program.py RELEASE`.
"""

import json
import sys

import torch
from torch import nn
from torch.nn import functional

import hpu_sim
from hpu_precision import HPUPrecisionPlugin

# A reference from before the plugin, as a model that is imported early has.
early_linear = functional.linear


def dtypes(plugin: HPUPrecisionPlugin) -> dict[str, str]:
    """Return the dtype of each kind of operator."""
    data = torch.rand(4, 4, device="hpu")
    low = data.bfloat16()
    layer, norm = nn.Linear(4, 4).to("hpu"), nn.LayerNorm(4).to("hpu")
    labels = torch.zeros(4, dtype=torch.long, device="hpu")
    with plugin.forward_context():
        results = {
            "a layer of the bf16 list": layer(data),
            "a method of the bf16 list": data.mul(data),
            "a Python operator of the bf16 list": data @ data,
            "an op that is not in the bridge's lists": functional.relu(data),
            "a function imported before the plugin": early_linear(data, data),
            "a function of the fp32 list": functional.cross_entropy(low, labels),
            "a Python operator of the fp32 list": low / low,
            "a layer of the fp32 list": norm(low),
            "an op of no list, from bfloat16": low.sigmoid(),
            "an op of the default lists only": data.softmax(-1),
            "an op with inputs of two dtypes": torch.cat([data, low]),
        }
    return {kind: str(output.dtype) for kind, output in results.items()}


def dtype_of_linear(plugin: HPUPrecisionPlugin) -> str:
    """Return the dtype of `linear`, or the error."""
    data = torch.rand(4, 4, device="hpu")
    try:
        with plugin.forward_context():
            return str(functional.linear(data, data).dtype)
    except RuntimeError as error:
        return str(error)


def main(release: str) -> None:
    """Create the plugin, and print the results."""
    hpu_sim.activate(release=release)
    fp32 = ["cross_entropy", "div", "layer_norm", "log"]
    plugin = HPUPrecisionPlugin(precision=16, bf16_ops=["linear", "matmul", "mul", "relu"], fp32_ops=fp32)
    found = dtypes(plugin)
    second = HPUPrecisionPlugin("bf16-mixed", bf16_ops=["relu"], fp32_ops=["linear"])
    print(json.dumps([found, dtype_of_linear(second), dtype_of_linear(plugin)]))  # noqa: T201 - the test parses it


if __name__ == "__main__":
    main(*sys.argv[1:])
