"""Gaudi PyTorch bridge, simulated by hpu-sim. No card is involved."""
