"""The Gaudi PyTorch bridge as the simulator plays it. Here because hpu-sim is active; no card is involved."""
