"""Test data: a training step compiled with the bridge's backend."""

from __future__ import annotations

import torch


def main() -> None:
    """Run a forward and a backward pass."""
    model = torch.nn.Linear(4, 3).to("hpu")
    compiled = torch.compile(model, backend="hpu_backend")
    loss = compiled(torch.ones(2, 4, device="hpu")).sum()  # the forward pass
    loss.backward()


if __name__ == "__main__":
    main()
