"""``hpu_backend``: graphs that torch.compile captures, run operator by operator on the simulated card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from habana_frameworks.torch.dynamo.compile_backend import config
from habana_frameworks.torch.hpu import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_NAME: Final = "hpu_backend"


def _compile_graph(graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    # A card compiles the graph to a recipe here.
    del example_inputs
    metrics.note_compilation()

    def run(arguments: list[Any]) -> Any:
        taken = list(arguments)
        # The caller hands its list over, so that the graph can free each input after its last use.
        arguments.clear()
        return graph(*taken)

    run._boxed_call = True  # type: ignore[attr-defined] # noqa: SLF001 - how functorch is told of the convention
    return run


def hpu_backend(
    graph_module: torch.fx.GraphModule, example_inputs: list[torch.Tensor], **kwargs: Any
) -> Callable[..., Any]:
    """Compile a graph of torch.compile.

    Args:
        graph_module: What dynamo captured.
        example_inputs: Its inputs.
        kwargs: ``options``, names of :mod:`habana_frameworks.torch.dynamo.compile_backend.config`.

    Raises:
        AttributeError: If an option is unknown.
    """
    # Not above: this module is loaded at the end of torch._dynamo's import, when what follows cannot be imported yet.
    from torch._dynamo.backends.common import aot_autograd

    with config.patch(kwargs.get("options") or {}):
        compiler = aot_autograd(
            fw_compiler=_compile_graph,
            bw_compiler=_compile_graph,
            keep_inference_input_mutations=config.keep_input_mutations,
        )
        compiled: Callable[..., Any] = compiler(graph_module, example_inputs)
    return compiled


def register() -> None:
    """Make the backend known to ``torch.compile`` by name."""
    from torch._dynamo.backends.registry import register_backend

    register_backend(hpu_backend, name=_NAME)
