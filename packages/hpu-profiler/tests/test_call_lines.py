"""Lines of the calls that wait for the device, from torch's tree of events."""

from types import SimpleNamespace
from typing import Any

import pytest

from hpu_profiler import _call_lines

_ITEM = "<built-in method item of Tensor object at 0x1>"
_FIT = ("lightning/pytorch/trainer/trainer.py", 100, "fit")
_STEP = ("train.py", 50, "training_step")
_MODULE = ("torch/nn/modules/module.py", 1, "_call_impl")
_METRIC = ("site-packages/torchmetrics/functional/text/perplexity.py", 62, "_perplexity_update")
_RESULTS = ("site-packages/lightning/pytorch/trainer/connectors/logger_connector/result.py", 7, "metrics")
_APPLY = ("site-packages/lightning/fabric/utilities/apply_func.py", 9, "to_item")


def _tree(*frames: tuple[str, int, str]) -> Any:
    """Return the events of nested frames, the outermost first, and of a call of `.item()` in the last one."""
    event: Any = None
    for number, (file, line, function) in reversed(list(enumerate(frames))):
        caller = SimpleNamespace(file_name=file, line_number=line, function_name=function)
        name = _ITEM if event is None else f"{file}({line}): {function}"
        fields = SimpleNamespace(caller=caller)
        children = [] if event is None else [event]
        event = SimpleNamespace(name=name, start_time_ns=number, extra_fields=fields, children=children)
    return event


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ((_FIT, _STEP), "train.py:50 training_step"),
        ((_FIT, _STEP, _MODULE, _METRIC), f"{_METRIC[0]}:62 _perplexity_update in train.py:50 training_step"),
        ((_FIT, _STEP, _RESULTS, _APPLY), "train.py:50 training_step"),
        ((_FIT, _RESULTS, _APPLY), f"{_RESULTS[0]}:7 metrics"),
    ],
    ids=["in the step", "in a metric of the step", "in Lightning below the step", "in Lightning alone"],
)
def test_line_says_who_waits(frames: tuple[tuple[str, int, str], ...], expected: str) -> None:
    assert _call_lines._call_lines([_tree(*frames)], frozenset()) == [(len(frames) - 1, expected)]
