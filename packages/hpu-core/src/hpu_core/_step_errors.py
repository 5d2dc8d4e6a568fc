"""Errors of steps that were written for another device: what to write on hpu."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_NO_CUDA: Final = "there is no CUDA beside Gaudi: in place of `.cuda()` and 'cuda', pass `device=self.device`"
# Parts of a message, and the sentence for it.
_SENTENCES: Final[Mapping[str, str]] = {
    "Torch not compiled with CUDA enabled": _NO_CUDA,
    # pip's default torch for Linux is compiled with CUDA.
    "Found no NVIDIA driver on your system": _NO_CUDA,
    "Expected all tensors to be on the same device": (
        "create the tensor with `device=self.device`, or register it as a buffer, which the strategy moves to hpu"
    ),
    "Sparse": "a card has no sparse tensors: pass `sparse=False`, and use `Adam` instead of `SparseAdam`",
    "Complex datatype is not supported on HPU": (
        "a card has no complex types: compute with real and imaginary parts, for rotary embeddings with cos and sin"
    ),
}
# Of an operator in mixed precision that has got bfloat16 of one that is cast, and float32 of another input.
_DTYPES: Final = re.compile(
    r"(?=.*[bB][Ff]loat16)(?=.*\b[Ff]loat(32)?\b).*(dtype|scalar type|[Tt]ype promoting|same type)", re.DOTALL
)
_CAST: Final = (
    "mixed precision casts this operator in no list, and its inputs have two dtypes: run it on `x.float()` within "
    "`torch.autocast('hpu', enabled=False)`, or name it in `fp32_ops` of `HPUPrecisionPlugin` beside the list's own"
)
_INDUCTOR: Final = (
    "torch.compile compiles for its default backend, inductor, which has no code generator for hpu: pass "
    '`backend="hpu_backend", dynamic=False`; for a function of a library, set TORCHDYNAMO_DISABLE=1, or call '
    '`torch.compiler.set_default_backend("hpu_backend")` of newer torch first'
)


@contextmanager
def explain_errors() -> Iterator[None]:
    """Return a context of a step, in which such an error ends with a sentence that says what to write."""
    try:
        yield
    except Exception as error:
        explain(error)
        raise


def explain(error: Exception) -> None:
    """End an error that has a sentence with it, once: a training step is a part of the optimizer's."""
    is_explained = any("On Gaudi: " in str(text) for text in (error, *getattr(error, "__notes__", ())))
    sentence = None if is_explained else _sentence(error)
    if sentence is not None:
        _append(error, sentence)


def _sentence(error: Exception) -> str | None:
    text = str(error)
    sentence = next((sentence for part, sentence in _SENTENCES.items() if part in text), None)
    if sentence is None and isinstance(error, RuntimeError) and _DTYPES.search(text):
        sentence = _CAST
    if sentence is None and _is_inductor_without_hpu(error):
        sentence = _INDUCTOR
    return sentence


def _append(error: Exception, sentence: str) -> None:
    # In place: not every error can be made from a message, and a user catches the class.
    if len(error.args) == 1:
        error.args = (f"{error.args[0]}\nOn Gaudi: {sentence}",)
    elif hasattr(error, "add_note"):
        error.add_note(f"On Gaudi: {sentence}")


def _is_inductor_without_hpu(error: BaseException | None) -> bool:
    """Return whether an error, or one that it wraps, is the KeyError of inductor, which looks a device up."""
    while error is not None:
        if "KeyError: 'hpu'" in f"{type(error).__name__}: {error}":
            return True
        error = getattr(error, "inner_exception", None) or error.__cause__
    return False
