"""Muon of DeepSpeed 0.17 and newer, whose functions `torch.compile` compiles for its default backend.

That backend, inductor, does not know hpu, and fails with "KeyError: 'hpu'".
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any, Final

import torch

from hpu_core import bridge

_MODULE: Final = "deepspeed.runtime.zero.muon.original_muon"


def patch(accelerator: Any) -> None:
    """Compile the functions for the accelerator's backend instead; in lazy mode, do not compile them. Idempotent.

    Args:
        accelerator: DeepSpeed's.
    """
    try:
        importlib.import_module(_MODULE)
    except ModuleNotFoundError:
        return
    # Other modules import the functions from there.
    for module in [module for name, module in sys.modules.items() if name.startswith("deepspeed.")]:
        for name, value in list(vars(module).items()):
            function = getattr(value, "_torchdynamo_orig_callable", None) if inspect.isfunction(value) else None
            if function is not None and function.__module__ == _MODULE:
                setattr(module, name, _compile(function, accelerator.get_compile_backend()))


@functools.cache
def _compile(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    return function if bridge.is_lazy() else torch.compile(function, backend=backend)
