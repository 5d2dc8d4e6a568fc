"""A program with faults, as test data: double precision on the card, then complex numbers, which no card takes."""

from __future__ import annotations

import torch


def main() -> None:
    """Compute a norm in float64, then move a spectrum to the card."""
    values = torch.ones(4, device="hpu")
    norm = values.double().pow(2).sum()
    norm.item()
    spectrum = torch.fft.fft(torch.ones(4))
    spectrum.to("hpu")


if __name__ == "__main__":
    main()
