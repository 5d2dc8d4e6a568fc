"""Tests with torchvision."""
