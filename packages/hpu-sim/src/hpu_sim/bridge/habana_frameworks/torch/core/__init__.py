"""``htcore``: where a program closes graphs in lazy mode."""

from habana_frameworks.torch import hpu
from habana_frameworks.torch.core.step_closure import add_step_closure, iter_mark_step, mark_step
from habana_frameworks.torch.utils import experimental as htexp
from habana_frameworks.torch.utils.internal import is_lazy

__all__ = ["add_step_closure", "hpu", "htexp", "is_lazy", "iter_mark_step", "mark_step"]
