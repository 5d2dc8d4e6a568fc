"""Bridge to torch. As with the real one, its import registers the device, patches torch and sets variables."""

# ruff: noqa: E402 - the order of the imports matters

import os
from pathlib import Path

from hpu_sim.device.features import features

# The real bridge does not have this name. Programs that report results read it, to say "simulated".
__simulated__ = True

os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
os.environ.setdefault("HABANA_PROFILE", "profile_api_light")

# Modules that only some releases have are in a folder of their own, so that `find_spec` does not find them elsewhere.
if features().after_1_19:
    __path__.append(str(Path(__file__).parent / "_after_1_19"))

from habana_frameworks.torch import hpu
from habana_frameworks.torch._overrides import patch_torch

patch_torch()

from habana_frameworks.torch import activity_profiler, core, distributed, internal, utils
from habana_frameworks.torch._adamw import define_operator
from habana_frameworks.torch._process_groups import patch_process_groups
from habana_frameworks.torch.dynamo import register_after_import

__all__ = ["activity_profiler", "core", "distributed", "hpu", "internal", "utils"]

define_operator()
patch_process_groups()
register_after_import()

if features().after_1_19:
    from habana_frameworks.torch._version import __version__, version

    __all__ += ["__version__", "version"]
