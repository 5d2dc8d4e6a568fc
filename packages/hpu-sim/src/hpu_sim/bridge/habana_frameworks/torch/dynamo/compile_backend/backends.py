"""``hpu_backend`` of torch.compile, which runs captured graphs operator by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from habana_frameworks.torch.dynamo.compile_backend import config
from habana_frameworks.torch.hpu import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_NAME: Final = "hpu_backend"


def _compile_graph(graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    # On a card this compiles the graph to a recipe.
    del example_inputs
    metrics.count_compilation()

    def run(arguments: list[Any]) -> Any:
        inputs = list(arguments)
        # The boxed convention: clearing the caller's list lets the graph free each input after its last use.
        arguments.clear()
        return graph(*inputs)

    run._boxed_call = True  # type: ignore[attr-defined] # noqa: SLF001 - functorch's marker of the boxed convention
    return run


def hpu_backend(
    graph_module: torch.fx.GraphModule, example_inputs: list[torch.Tensor], **kwargs: Any
) -> Callable[..., Any]:
    """Compile a graph for torch.compile.

    Raises:
        AttributeError: If an option is unknown.
    """
    # A local import, because this module is imported during the import of torch._dynamo.
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
    """Register the backend's name in dynamo."""
    from torch._dynamo.backends.registry import register_backend

    register_backend(hpu_backend, name=_NAME)
