"""How much a card can compute at most, which a measured throughput is compared with."""

from typing import Final

import torch

from hpu_core import discovery

__all__ = ["peak_flops", "peak_flops_of_machine"]

# Dense matrix products, in FLOP/s, by generation and name of the type. Source: Intel's white paper "Intel Gaudi 3 AI
# Accelerator" of 2024, which compares Gaudi 2 and Gaudi 3 (OAM). It has no figures of float32 and float16, and none
# were published of the first generation: those stay unknown.
_PEAK: Final = {
    "GAUDI2": {"bfloat16": 432e12, "float8": 865e12},
    "GAUDI3": {"bfloat16": 1835e12, "float8": 1835e12},
}


def peak_flops(generation: str, dtype: torch.dtype) -> float | None:
    """Return the peak of a card for dense matrix products, in FLOP/s; None where the vendor has published none.

    Args:
        generation: "GAUDI", "GAUDI2" or "GAUDI3".
        dtype: What the products are computed in. Any float8 is one type.
    """
    name = str(dtype).removeprefix("torch.")
    return _PEAK.get(generation, {}).get("float8" if name.startswith("float8") else name)


def peak_flops_of_machine(dtype: torch.dtype) -> float | None:
    """Return the peak of this machine's cards, as `peak_flops`. Opens no card.

    The simulator's cards have the peak of the generation that they play, so that the same figures are logged; what a
    processor reaches of it says nothing.

    Args:
        dtype: What the products are computed in.
    """
    generation = discovery.device_name()
    return None if generation is None else peak_flops(generation, dtype)
