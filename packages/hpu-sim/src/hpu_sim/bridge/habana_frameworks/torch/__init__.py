"""Importing any part of the bridge registers the device, patches torch and sets variables, as the real one does."""

import os

# True on the simulator; the real bridge has no such name. Programs that report results ask it to say "simulated".
__simulated__ = True

os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
os.environ.setdefault("HABANA_PROFILE", "profile_api_light")

from habana_frameworks.torch import hpu
from habana_frameworks.torch._overrides import patch_torch

patch_torch()

from habana_frameworks.torch import core, distributed, utils  # noqa: E402 - they expect the device to be registered

__all__ = ["core", "distributed", "hpu", "utils"]
