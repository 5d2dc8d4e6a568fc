"""Private names of torch that this package uses, with what it does where torch has none.

`Module.compile` sets `_compiled_call_impl` and has no public inverse. dynamo tells what it compiles only through the
logger of TORCH_TRACE, which tlparse reads as well; in torch 2.5 to 2.13 its records have the same keys.
tests/test_torch.py notices a change.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from hpu_compile.report import GraphBreak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

# frame_id counts code objects, frame_compile_id the compilations of one.
FrameKey = tuple[int, int]

# As the limits are called in torch since 2.6 and before.
_LIMITS: Final = ("recompile_limit", "cache_size_limit")
_ACCUMULATED_LIMITS: Final = ("accumulated_recompile_limit", "accumulated_cache_size_limit")

_TORCH_FOLDER: Final = str(Path(torch.__file__).parent)
_BREAK: Final = re.compile(
    r"at (?P<file>.+?):(?P<line>\d+)\n(?:Graph Break )?Reason: (?P<reason>.*?)(?:\n\n?User code|\Z)", re.DOTALL
)


def supports_regions() -> bool:
    """Return whether dynamo compiles one graph for all modules of a class, as torch 2.5 and newer do."""
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (2, 5)


def compile_module(module: torch.nn.Module, **options: Any) -> None:
    """Compile the calls of a module, in place.

    `Module.compile` compiles nothing of a class of torch's, such as Linear, because dynamo skips torch's own files. Of
    these, `forward` is compiled here, and hooks stay in eager mode, as those of FSDP must.
    """
    if not type(module).forward.__module__.startswith("torch."):
        module.compile(**options)
        return
    forward = module.forward

    # A function outside of torch, which dynamo traces with all that it calls.
    def trace(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    compiled = torch.compile(trace, **options)

    def call(*args: Any, **kwargs: Any) -> Any:
        # Only while the module is called: a copy of it must not call this one.
        own = vars(module).get("forward")
        vars(module)["forward"] = compiled
        try:
            return module._call_impl(*args, **kwargs)  # noqa: SLF001 - what `Module.compile` compiles
        finally:
            del vars(module)["forward"]
            if own is not None:
                vars(module)["forward"] = own

    module._compiled_call_impl = call  # noqa: SLF001 - as `Module.compile`


def is_compiled(module: torch.nn.Module) -> bool:
    """Return whether a module has been compiled in place."""
    return getattr(module, "_compiled_call_impl", None) is not None


def restore_module(module: torch.nn.Module) -> None:
    """Undo `compile_module`."""
    module._compiled_call_impl = None  # noqa: SLF001 - torch has no public inverse


def lookup_backend(name: str) -> Any:
    """Return a registered backend of torch.compile.

    Raises:
        torch._dynamo.exc.InvalidBackend: There is none of that name.
    """
    import torch._dynamo  # takes seconds, so only programs that compile do it

    return torch._dynamo.lookup_backend(name)  # noqa: SLF001 - the documented place of this function


class _SharedConfig:
    """Options of dynamo that are set while one compilation exists or several, which may end in any order."""

    def __init__(self) -> None:
        self._count = 0
        self._stack = contextlib.ExitStack()

    @contextlib.contextmanager
    def patch(self, limit: int, **values: object) -> Iterator[None]:
        """Raise dynamo's limits on the graphs of a function, and set other options, until the last context ends.

        The options of the latest context hold.

        Args:
            limit: Least value of the limits.
            **values: Options of `torch._dynamo.config`; those that this torch does not have are left out.
        """
        import torch._dynamo

        config: Any = torch._dynamo.config  # noqa: SLF001 - the documented place of these options
        for names in (_LIMITS, _ACCUMULATED_LIMITS):
            name = next((name for name in names if hasattr(config, name)), None)
            if name is not None:
                values[name] = max(getattr(config, name), limit)
        self._stack.enter_context(config.patch({name: each for name, each in values.items() if hasattr(config, name)}))
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._stack.close()


patch_config: Final = _SharedConfig().patch


def force_eager() -> contextlib.AbstractContextManager[Any] | None:
    """Return a context without compiled graphs; None in torch before 2.6, which has none."""
    set_stance = getattr(torch.compiler, "set_stance", None)
    return None if set_stance is None else set_stance("force_eager")


@dataclass(frozen=True)
class Call:
    """Call of a region.

    Attributes:
        region: Name of the module.
        line: "file:line" of the call in the program.
    """

    region: str
    line: str


def find_call(modules: Mapping[int, str]) -> Call | None:
    """Return the innermost call of a region on this thread's stack.

    Args:
        modules: Name of each module that is a region, by `id`.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - inspect reads the sources of all frames
    while frame is not None:
        # What `Module.__call__` is; it calls what `Module.compile` has made.
        if frame.f_code.co_name == "_wrapped_call_impl":
            name = modules.get(id(frame.f_locals.get("self")))
            if name is not None:
                return Call(name, _calling_line(frame))
        frame = frame.f_back
    return None


def _calling_line(frame: FrameType) -> str:
    """Return the line outside of torch that called a frame."""
    outer = frame.f_back
    while outer is not None and outer.f_code.co_filename.startswith(_TORCH_FOLDER) and outer.f_back is not None:
        outer = outer.f_back
    return "an unknown line" if outer is None else f"{outer.f_code.co_filename}:{outer.f_lineno}"


@dataclass(frozen=True)
class CompileEvent:
    """What dynamo tells, on the thread that compiles, of the compilation of a frame.

    Attributes:
        key: The frame.
        guard: The guard that has made it compile again.
        graph_break: Line at which its graph ends.
        seconds: How long it took, once it is complete.
    """

    key: FrameKey
    guard: str | None = None
    graph_break: GraphBreak | None = None
    seconds: float = 0.0


@contextlib.contextmanager
def listen(tell: Callable[[CompileEvent], None]) -> Iterator[None]:
    """Return a context in which `tell` is called with what happens to the compilations of this process."""
    logger, handler = logging.getLogger("torch.__trace"), _TraceHandler(tell)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _TraceHandler(logging.Handler):
    def __init__(self, tell: Callable[[CompileEvent], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        metadata: dict[str, Any] = getattr(record, "metadata", {})
        if metadata.get("frame_id") is None or metadata.get("frame_compile_id") is None:
            return
        event = CompileEvent((metadata["frame_id"], metadata["frame_compile_id"]))
        payload: str = getattr(record, "payload", None) or ""
        name = metadata.get("artifact", {}).get("name")
        if name == "recompile_reasons":
            event = replace(event, guard=_first_reason(payload))
        elif name == "dynamo_graph_break_reason":
            found = _BREAK.search(payload)
            if found is not None:
                event = replace(event, graph_break=_graph_break(found["file"], found["line"], found["reason"]))
        elif "compilation_metrics" in metadata:
            metrics = metadata["compilation_metrics"]
            seconds = metrics.get("entire_frame_compile_time_s") or (metrics.get("duration_us") or 0) / 1e6
            event = replace(event, seconds=float(seconds), graph_break=_failure(metrics))
        self._tell(event)


def _failure(metrics: Mapping[str, Any]) -> GraphBreak | None:
    """Return where a compilation failed, if it did."""
    if not metrics.get("fail_reason"):
        return None
    file = metrics.get("fail_user_frame_filename") or metrics.get("co_filename") or "an unknown file"
    line = metrics.get("fail_user_frame_lineno") or metrics.get("co_firstlineno") or 0
    return _graph_break(file, line, str(metrics["fail_reason"]))


def _first_reason(payload: str) -> str:
    """Return the first reason of a JSON list, or a text; it is about the newest graph."""
    with contextlib.suppress(ValueError):
        loaded = json.loads(payload)
        payload = str(loaded[0] if isinstance(loaded, list) and loaded else loaded)
    # Without the number of the graph, "0/1: ".
    return re.sub(r"^\d+/\d+: ", "", payload.strip().splitlines()[0]) if payload.strip() else "unknown"


def _graph_break(file: str, line: str | int, reason: str) -> GraphBreak:
    """Return a break with the line of its reason that says most."""
    found = re.search(r"Explanation: (.*)", reason)
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()]
    return GraphBreak(file, int(line), inspect.cleandoc(found[1]) if found else (lines or ["unknown"])[0])
