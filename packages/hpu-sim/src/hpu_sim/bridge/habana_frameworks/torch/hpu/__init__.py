"""``torch.hpu``, the device module, with the bridge's names, signatures and return types."""

# ruff: noqa: F401, F403 - each module lists its public names, which depend on the release

import sys

from habana_frameworks.torch.hpu import _utils, memory, metrics, random
from habana_frameworks.torch.hpu._autocast import *
from habana_frameworks.torch.hpu._flags import *
from habana_frameworks.torch.hpu._tensors import *
from habana_frameworks.torch.hpu._utils import _is_in_bad_fork, _lazy_init, init, is_initialized
from habana_frameworks.torch.hpu.devices import *
from habana_frameworks.torch.hpu.memory import *
from habana_frameworks.torch.hpu.metrics import metric_global, metric_localcontext
from habana_frameworks.torch.hpu.random import *
from habana_frameworks.torch.hpu.streams import *
from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.device.features import features

if features().after_1_19:
    from habana_frameworks.torch._version import __version__, version
    from habana_frameworks.torch.hpu._philox import set_rng_ctx, unset_rng_ctx
if features().after_1_19 or is_lazy():
    from habana_frameworks.torch.hpu.graphs import *


def __getattr__(name: str) -> object:
    # torch.utils.checkpoint reads this attribute, whose value changes.
    if name == "_initialized":
        return is_initialized()
    # Programs use `hpu.hpu`, a leftover of the bridge's star imports.
    if name == "hpu":
        return sys.modules[__name__]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
