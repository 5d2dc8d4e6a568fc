"""HMP, the mixed precision of SynapseAI up to 1.12. Delete this module when 1.13 is the oldest supported release."""

import warnings
from types import ModuleType

from hpu_core import bridge


def load_hmp() -> ModuleType | None:
    """Import HMP; return None if the bridge has none. Opens no device.

    The import has no effect on the process; HMP's `convert` has.
    """
    with warnings.catch_warnings():
        # HMP warns about its own removal, which callers handle.
        warnings.simplefilter("ignore")
        return bridge.optional_module("hpex.hmp")
