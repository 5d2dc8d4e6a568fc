"""Lightning 2.0, which has HPU support of its own and cannot be imported beside a bridge without HMP.

Its precision plugin imports HMP wherever there is a card, and SynapseAI has none since 1.13.
"""

from types import ModuleType

from hpu_core import bridge


def spare_hmp(module: ModuleType) -> None:
    """Have Lightning 2.0 import no HMP where there is none: to its own classes, which ours replace, there is no card.

    Args:
        module: `accelerators.hpu`, which the others ask whether there is a card. Later Lightnings have no such module.
    """
    if getattr(module, "_HPU_AVAILABLE", False) and bridge.hmp() is None:
        vars(module)["_HPU_AVAILABLE"] = False
