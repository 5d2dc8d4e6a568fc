"""What most trainings with PyTorch Lightning on Intel Gaudi (HPU) need: its dependencies, and no code."""

from hpu_lightning.__about__ import __version__

__all__ = ["__version__"]
