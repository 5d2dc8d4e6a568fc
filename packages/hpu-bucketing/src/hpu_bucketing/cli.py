"""Command line of `hpu-bucketing`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from hpu_bucketing.__about__ import __version__
from hpu_bucketing.plan.bucket_plan import BucketPlan
from hpu_bucketing.report.text import print_plan
from hpu_core.command_line import COULD_NOT_RUN, mark_json, write_json

__all__ = ["main", "plan"]

#: Columns of the table where the output is not a terminal.
_DEFAULT_WIDTH = 140


@click.group()
@click.version_option(__version__, prog_name="hpu-bucketing")
def main() -> None:
    """Choose buckets for data of variable length."""


class _Command(click.Command):
    """Command whose `--json` has a file only after an equals sign."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments."""
        return super().parse_args(ctx, mark_json(args))


@main.command(cls=_Command)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", help="Name of the LightningDataModule, or of a function that returns a DataLoader.")
@click.option("--key", "keys", multiple=True, help="Field to measure, FIELD or FIELD:DIM. Repeat for more dimensions.")
@click.option("--samples", default=100_000, show_default=True, type=click.IntRange(1), help="Most samples to measure.")
@click.option("--batch-size", type=click.IntRange(1), help="Samples per batch. [default: that of the DataLoader]")
@click.option(
    "--align", type=click.IntRange(1), help="Boundaries are multiples of it. [default: 128, or less for short samples]"
)
@click.option("--max-buckets", default=16, show_default=True, type=click.IntRange(1), help="Most shapes to consider.")
@click.option("--buckets", "num_buckets", type=click.IntRange(1), help="Number of shapes. [default: the curve's knee]")
@click.option("--ranks", default=1, show_default=True, type=click.IntRange(1), help="Number of cards.")
@click.option("--epochs", default=1, show_default=True, type=click.IntRange(1), help="Number of epochs.")
@click.option("--tokens-per-second", type=float, help="Speed of a card. With it, the least estimated time decides.")
@click.option(
    "--compile-seconds", "seconds_per_compilation", default=25.0, show_default=True, help="Time to compile a graph."
)
@click.option(
    "--json", "json_to", metavar="[=FILE]", help="Print JSON instead of a table, or write it to a file (--json=FILE)."
)
def plan(
    file: Path,
    name: str | None,
    keys: tuple[str, ...],
    samples: int,
    json_to: str | None,
    **options: Any,
) -> None:
    """Choose buckets for the training data of FILE, on any machine.

    FILE is a Python file with a LightningDataModule that needs no arguments, or with a function `train_dataloader`. Its
    samples are read as they are; no model runs.
    """
    # Loads torch and Lightning.
    from hpu_bucketing.dry_run import dataset_size, load_dataloader, measure_lengths

    try:
        loader = load_dataloader(file, name)
        lengths = measure_lengths(loader, keys, samples)
        total = dataset_size(loader, lengths, samples)
        if total is None and options["tokens_per_second"] is not None:
            raise click.UsageError(
                f"`--tokens-per-second` needs the number of samples, which an IterableDataset of more than {samples:,} "
                "without `__len__` does not have: measure all of them with a larger `--samples`"
            )
        batch_size = options.pop("batch_size") or _batch_size(loader)
        chosen = BucketPlan.from_lengths(lengths, batch_size, samples=total, **options)
        if json_to:
            write_json({"schema_version": 1, **chosen.to_dict()}, json_to)
    except (OSError, ValueError) as error:
        click.echo(f"hpu-bucketing: {error}", err=True)
        sys.exit(COULD_NOT_RUN)
    if json_to:
        return
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _DEFAULT_WIDTH)
    print_plan(console, chosen, len(lengths), total)


def _batch_size(loader: Any) -> int:
    """Return the batch size of a DataLoader; the largest one of a BucketBatchSampler."""
    if loader.batch_size is not None:
        return int(loader.batch_size)
    sampler = loader.batch_sampler
    return int(getattr(sampler, "batch_size", None) or max(getattr(sampler, "batch_sizes", (1,))))
