"""The simulator's library of kernels, loaded but not active: this takes half of the simulator's start."""

from hpu_sim.device import build

build.load_extension()
