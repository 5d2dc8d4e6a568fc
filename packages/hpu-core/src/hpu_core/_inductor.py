"""Error for models that torch.compile has compiled for its default backend, inductor, which has no hpu."""

import sys

import torch


def reject_inductor(model: torch.nn.Module) -> None:
    """Check that inductor has compiled no part of a model, whose first step would fail with `KeyError: 'hpu'`.

    Raises:
        ValueError: It has; the message has the line to write.
    """
    if "torch._dynamo" not in sys.modules or sys.modules["torch._dynamo"].config.disable:
        return
    for name, part in model.named_modules():
        # What `torch.compile(part)` returns, what `part.compile()` sets, and what Lightning keeps of the former.
        compiled = [
            part,
            vars(part).get("_compiled_call_impl"),
            (vars(part).get("_compiler_ctx") or {}).get("dynamo_ctx"),
        ]
        if any(map(_is_inductor, compiled)):
            what = f"`{name.removesuffix('._orig_mod')}`" if name else "the model"
            raise ValueError(
                f"{what} is compiled by inductor, torch.compile's default, which has no code generator for hpu: pass "
                "`callbacks=HPUCompile()` of hpu-compile to the Trainer instead, or name the backend, "
                '`torch.compile(model, backend="hpu_backend", dynamic=False)`'
            )


def _is_inductor(compiled: object) -> bool:
    """Return whether torch.compile has made an object, with inductor, the only backend that has a configuration."""
    if type(compiled).__name__ == "OptimizeContext":
        return isinstance(getattr(compiled, "compiler_config", None), dict)
    get = getattr(compiled, "get_compiler_config", None)
    return callable(get) and isinstance(get(), dict)
