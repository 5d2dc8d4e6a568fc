"""What the bridge adds to torch.distributed."""
