"""The command `hpu-export`."""

import argparse
import logging
import pickle
import sys
from collections.abc import Sequence

from hpu_core.command_line import COULD_NOT_RUN
from hpu_export.__about__ import __version__

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Export a checkpoint and return the exit code: 0, or 2 with one sentence on standard error.

    Args:
        arguments: Arguments of the command; None for those of the process.
    """
    options = vars(_parser().parse_args(arguments))
    # torch is imported after `--help`.
    from hpu_export.export import export_checkpoint

    # A terminal has the progress bar.
    level = logging.WARNING if sys.stderr.isatty() else logging.INFO
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("hpu_export").setLevel(level)
    try:
        export_checkpoint(options.pop("source"), options.pop("to"), **options)
    except (ImportError, OSError, TypeError, ValueError, pickle.UnpicklingError) as error:
        sys.stderr.write(f"hpu-export: error: {error}\n")
        return COULD_NOT_RUN
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hpu-export",
        description="Export a checkpoint of Lightning, FSDP or DeepSpeed as safetensors or as a Hugging Face folder.",
    )
    parser.add_argument("source", help="checkpoint: a file, a folder, or a URL that fsspec knows")
    parser.add_argument("--to", required=True, help="new file *.safetensors, or new folder")
    parser.add_argument(
        "--model", help="folder or name of a Hugging Face model with configuration and tokenizer; default: plain names"
    )
    parser.add_argument("--dtype", choices=["fp32", "bf16", "fp16"], help="dtype of the weights; default: as they are")
    parser.add_argument("--max-shard-size", default="5GB", help="largest file of a folder (%(default)s)")
    parser.add_argument(
        "--weights", choices=["averaged", "current"], default="averaged", help="of WeightAveraging (%(default)s)"
    )
    parser.add_argument("--key", help="key of the weights, if the checkpoint has several models")
    parser.add_argument("--prefix", help="start of the names to export, which is removed; default: found")
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="PATTERN",
        help="names to leave out, as 'loss.*'; repeatable",
    )
    parser.add_argument("--adapter", action="store_true", help="export an adapter of PEFT alone, as PEFT saves it")
    parser.add_argument("--adapter-config", metavar="PATH", help="adapter_config.json, if the source has none")
    parser.add_argument("--tag", help="name of a DeepSpeed save; default: the one that its file `latest` names")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier export")
    parser.add_argument(
        "--no-weights-only",
        dest="weights_only",
        action="store_false",
        help="unpickle any object, which can run code that the file contains: for files that you trust",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s, version {__version__}")
    return parser
