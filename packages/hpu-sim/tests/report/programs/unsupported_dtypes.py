"""Test data: float64 on the device, then a complex tensor, which fails."""

from __future__ import annotations

import torch


def main() -> None:
    """Compute a norm in float64, then copy a complex tensor to the device."""
    values = torch.ones(4, device="hpu")
    norm = values.double().pow(2).sum()
    norm.item()
    spectrum = torch.fft.fft(torch.ones(4))
    spectrum.to("hpu")


if __name__ == "__main__":
    main()
