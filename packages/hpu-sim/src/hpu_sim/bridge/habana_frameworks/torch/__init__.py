"""Importing any part of the bridge registers the device, patches torch and sets variables, as the real one does."""

# ruff: noqa: E402 - what follows depends on what stands before it

import os
from pathlib import Path

from hpu_sim.features import features

# True on the simulator; the real bridge has no such name. Programs that report results ask it to say "simulated".
__simulated__ = True

os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
os.environ.setdefault("HABANA_PROFILE", "profile_api_light")

# Modules that only some releases have lie in folders of their own: elsewhere nothing must find them.
if features().after_1_19:
    __path__.append(str(Path(__file__).parent / "_after_1_19"))

from habana_frameworks.torch import hpu
from habana_frameworks.torch._overrides import patch_torch

patch_torch()

from habana_frameworks.torch import activity_profiler, core, distributed, utils
from habana_frameworks.torch._operators import define_operators
from habana_frameworks.torch._process_groups import patch_process_groups
from habana_frameworks.torch.dynamo import register_when_imported

__all__ = ["activity_profiler", "core", "distributed", "hpu", "utils"]

define_operators()
patch_process_groups()
register_when_imported()

if features().after_1_19:
    from habana_frameworks.torch.version import __version__, version

    __all__ += ["__version__", "version"]
