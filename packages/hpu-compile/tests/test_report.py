"""Tests of the report."""

from collections import Counter

from hpu_compile import CompileReport, GraphBreak, Recompilation, RegionReport


def _report() -> CompileReport:
    block = RegionReport("Block (2 modules: blocks.0 to blocks.1)", Counter(training=2, evaluation=1), seconds=2.5)
    block.breaks.append(GraphBreak("net.py", 7, "a call of print"))
    block.recompilations.append(Recompilation("blocks.0", "training", "size 3, not 4", "net.py:9", 5))
    return CompileReport((block, RegionReport("head")), steady_after=6, simulated=True)


def test_report_has_sums_of_its_regions() -> None:
    assert (_report().graphs, _report().seconds) == (3, 2.5)


def test_text_has_a_line_for_each_fact() -> None:
    assert str(_report()).splitlines() == [
        "torch.compile: 3 graphs in 2.5 s, steady after 6 steps (simulated)",
        "  Block (2 modules: blocks.0 to blocks.1): 2 of training, 1 of evaluation; 2.5 s",
        "    compiled again: `blocks.0`, training, step 5: size 3, not 4 (net.py:9)",
        "    graph break: net.py:7: a call of print",
        "  head: no graphs; 0.0 s",
    ]


def test_recompilation_of_the_model_itself_has_a_name() -> None:
    assert str(Recompilation("", "evaluation", "why", "net.py:9")) == "`the model`, evaluation: why (net.py:9)"
