"""Compilation of regions in place, with limits and a record of what was compiled."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from hpu_compile import _requirements, _torch
from hpu_compile.regions import Region, find_regions
from hpu_compile.report import CompileReport, Recompilation, RegionReport
from hpu_core import bridge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import Self

    from hpu_compile.regions import Regions
    from hpu_compile.report import Mode

__all__ = ["Compilation", "RecompileLimitWarning", "compile_regions"]

# Least limit of dynamo's own, which counts the graphs of all modules of a class together. `shapes` limits those of one
# module, so dynamo's only bounds what else makes it compile.
_DYNAMO_LIMIT = 256


class RecompileLimitWarning(UserWarning):
    """A module has more shapes than graphs were allowed for; further ones run without the compiler."""


def compile_regions(
    module: torch.nn.Module,
    regions: Regions = "blocks",
    *,
    shapes: int = 1,
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Compilation:
    """Compile the regions of a model in place, with static shapes.

    Call it when the model is complete: after FSDP, FSDP2, DDP, DeepSpeed, PEFT or `Fabric.setup` have changed it. Names
    of parameters, checkpoints and hooks stay as they are.

    Args:
        module: The model, on the device; a wrapper of Fabric, DDP, FSDP or DeepSpeed is looked through.
        regions: "blocks" for the repeated blocks (see `find_regions`), or names of modules, names of classes, and
            classes.
        shapes: Number of shapes of the inputs. Each module may have so many graphs per mode and one more, for a last
            batch of another size. Further ones run without the compiler, with a `RecompileLimitWarning`.
        fullgraph: Whether a graph break is an error.
        options: Options of `hpu_backend`, such as `{"use_eager_fallback": True}`.

    Returns:
        The compilation, with its report. As a context manager, it undoes the compilation.

    Raises:
        RuntimeError: The bridge is in lazy mode, torch is older than 2.5, or the parameters are partitioned by ZeRO-3.
        TypeError: `regions` has a wrong type.
        ValueError: An argument is invalid, or the model has no such region.
    """
    compilation = Compilation(
        find_regions(module, regions),
        shapes=lambda: shapes,
        options={"fullgraph": fullgraph, **({"options": dict(options)} if options else {})},
    )
    if shapes < 1:
        raise ValueError(f"`shapes` must be a positive int, got {shapes!r}")
    compilation.start()
    return compilation


class Compilation:
    """Regions that are compiled, and what the compiler has made of them.

    Args:
        regions: The regions.
        shapes: Returns the number of shapes.
        options: Further arguments of `torch.compile`.

    Attributes:
        regions: The regions.
        step: Training step, for the report; None outside of a Trainer.
    """

    def __init__(
        self,
        regions: Sequence[Region],
        *,
        shapes: Callable[[], int],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        _requirements.validate(module for region in regions for module in region.modules.values())
        self.regions = tuple(regions)
        self.step: int | None = None
        self._options = dict(options or {})
        self._recorder = _Recorder(self, shapes)
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        """Compile the regions at their next calls. A module that is compiled already keeps its compilation."""
        try:
            self._stack.enter_context(_torch.listen(self._recorder.on_event))
            # DDP's optimizer splits a compiled model into graphs of its buckets; regions are smaller than those.
            self._stack.enter_context(_torch.patch_config(_DYNAMO_LIMIT, optimize_ddp=False))
            compiler = _torch.lookup_backend(_requirements.BACKEND)
            for index, region in enumerate(self.regions):
                backend = _make_backend(self._recorder, index, compiler)
                for module in region.modules.values():
                    if not _torch.is_compiled(module):
                        _torch.compile_module(module, backend=backend, dynamic=False, **self._options)
                        self._stack.callback(_torch.restore_module, module)
        except BaseException:
            self.restore()
            raise

    def restore(self) -> None:
        """Undo the compilation, and restore the options of torch that it has set."""
        self._stack.close()

    @property
    def report(self) -> CompileReport:
        """What was compiled so far."""
        return self._recorder.report()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.restore()


def _make_backend(recorder: _Recorder, region: int, compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Return the backend of one region, which counts its graphs."""

    def compile_graph(graph: Any, inputs: Any, **options: Any) -> Any:
        # Otherwise operator by operator, as without torch.compile.
        return compiler(graph, inputs, **options) if recorder.on_graph(region) else graph.forward

    compile_graph.__name__ = _requirements.BACKEND
    return compile_graph


class _Recorder:
    """What happens while regions are compiled.

    dynamo tells of a compilation first; then the backend is called, which knows the region; then dynamo tells more.
    """

    def __init__(self, compilation: Compilation, shapes: Callable[[], int]) -> None:
        self._compilation = compilation
        self._shapes = shapes
        self._reports = [RegionReport(str(region)) for region in compilation.regions]
        self._names = {id(module): name for region in compilation.regions for name, module in region.modules.items()}
        self._region_of = {
            name: report
            for region, report in zip(compilation.regions, self._reports, strict=True)
            for name in region.modules
        }
        self._key: _torch.FrameKey | None = None
        self._calls: dict[_torch.FrameKey, _torch.Call | None] = {}
        self._guards: dict[_torch.FrameKey, str] = {}
        # Graphs of a region's code by mode, and of one module.
        self._of_code: Counter[tuple[int, int, Mode]] = Counter()
        self._of_module: Counter[tuple[str, int, Mode]] = Counter()
        self._limited: set[tuple[str, Mode]] = set()
        self._last_step: int | None = None

    def report(self) -> CompileReport:
        """Return the report."""
        return CompileReport(tuple(self._reports), self._last_step, bridge.is_simulated())

    def on_graph(self, region: int) -> bool:
        """Count a graph, and return whether to compile it: not if its module has too many."""
        mode: Mode = "training" if torch.is_grad_enabled() else "evaluation"
        key = self._key or (-1, -1)
        call = self._calls.get(key) or _torch.Call(self._reports[region].name, "an unknown line")
        counted = (call.region, key[0], mode)
        # One more, for a last batch of another size.
        if self._of_module[counted] > self._shapes():
            self._warn_of_limit(call, mode, self._guards.get(key, "unknown"))
            return False
        again = self._of_code[region, key[0], mode] > 0
        self._of_module[counted] += 1
        self._of_code[region, key[0], mode] += 1
        report = self._reports[region]
        report.graphs[mode] += 1
        step = self._compilation.step
        if again:
            guard = self._guards.get(key, "unknown")
            report.recompilations.append(Recompilation(call.region, mode, guard, call.line, step))
        if step is not None and mode == "training":
            self._last_step = step + 1
        return True

    def _warn_of_limit(self, call: _torch.Call, mode: Mode, guard: str) -> None:
        if (call.region, mode) not in self._limited:
            self._limited.add((call.region, mode))
            warnings.warn(
                f"`{call.region or 'the model'}` has more than {self._shapes()} + 1 graphs of {mode}: {guard}, in the "
                f"call at {call.line}. Pad the inputs to a few shapes, or pass `shapes`, the number of them; further "
                "shapes run without the compiler",
                RecompileLimitWarning,
                stacklevel=2,
            )

    def on_event(self, event: _torch.CompileEvent) -> None:
        """Note which region is being compiled, and add what dynamo tells to its report."""
        key = self._key = event.key
        if key not in self._calls:
            self._calls[key] = _torch.find_call(self._names)
        if event.guard is not None:
            self._guards[key] = event.guard
        call = self._calls[key]
        # Another program may compile as well.
        report = None if call is None else self._region_of.get(call.region)
        if report is None:
            return
        report.seconds += event.seconds
        found = event.graph_break
        if found is not None and (found.file, found.line) not in {(each.file, each.line) for each in report.breaks}:
            report.breaks.append(found)
