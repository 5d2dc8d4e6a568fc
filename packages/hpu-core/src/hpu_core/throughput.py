"""Peak FLOP/s of the devices, for model FLOPs utilization (MFU)."""

from typing import Final

import torch

from hpu_core import discovery

# FLOP/s of dense matrix products by generation and dtype. Sources: Intel's slides on Gaudi 3 at Hot Chips 2024 (Gaudi),
# Intel's white paper "Intel Gaudi 3 AI Accelerator" of 2024 (Gaudi 2 and 3, OAM); float16 and float32 of Gaudi 3 are
# second-hand, from Intel by way of stas00/ml-engineering. Types without a figure have none published.
_PEAK: Final = {
    "GAUDI": {"bfloat16": 60e12},
    "GAUDI2": {"bfloat16": 432e12, "float8": 865e12},
    # 1835e12 takes a matrix engine clock of 1750 MHz. At the 1600 MHz that devices run at, the peak is 1677e12.
    "GAUDI3": {"bfloat16": 1835e12, "float8": 1835e12, "float16": 459e12, "float32": 229e12},
}


def peak_flops(generation: str, dtype: torch.dtype) -> float | None:
    """Return the peak of a device for dense matrix products in FLOP/s, as Intel states it.

    The figures for Gaudi 3 in bfloat16 and float8 are 9 % above what its clock allows, so MFU relative to them cannot
    exceed 91 %.

    Args:
        generation: "GAUDI", "GAUDI2" or "GAUDI3".
        dtype: Type of the operands. All float8 types have the same peak.

    Returns:
        The peak, None if no figure is published.
    """
    name = str(dtype).removeprefix("torch.")
    return _PEAK.get(generation, {}).get("float8" if name.startswith("float8") else name)


def peak_flops_of_machine(dtype: torch.dtype) -> float | None:
    """Return the peak of this machine's devices, see `peak_flops`. Opens no device.

    Simulated devices have the peak of their generation and log the same metrics. MFU on the simulator does not predict
    that of a card.
    """
    generation = discovery.device_name()
    return None if generation is None else peak_flops(generation, dtype)
