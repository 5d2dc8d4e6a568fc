"""Programs with torchvision on two simulated devices."""
