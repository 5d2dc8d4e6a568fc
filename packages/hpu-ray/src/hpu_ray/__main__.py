"""Run an unchanged script as the ranks of a Ray Train job: `python -m hpu_ray --num-workers 8 train.py`."""

import argparse
import runpy
import sys
from collections.abc import Sequence
from typing import Any

from hpu_ray._ray import FailureConfig, RunConfig, TorchTrainer
from hpu_ray.config import HPUTorchConfig, scaling_config, worker_runtime_env


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command.

    Args:
        arguments: Its arguments; those of this process when None.
    """
    options = _parse(arguments)
    TorchTrainer(
        _run_script,
        train_loop_config={"script": options.script, "arguments": options.arguments},
        scaling_config=scaling_config(options.num_workers, cpus_per_worker=options.cpus_per_worker),
        torch_config=HPUTorchConfig(),
        run_config=RunConfig(
            name=options.name,
            storage_path=options.storage_path,
            failure_config=FailureConfig(max_failures=options.max_failures),
            worker_runtime_env=worker_runtime_env(),
        ),
    ).fit()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m hpu_ray", description=__doc__)
    parser.add_argument("--num-workers", type=int, required=True, help="Workers, which are ranks with a card each.")
    parser.add_argument("--cpus-per-worker", type=float, default=1, help="CPU cores of a worker.")
    parser.add_argument(
        "--max-failures", type=int, default=0, help="How often all workers start again after a failure."
    )
    parser.add_argument("--name", help="Name of the job.")
    parser.add_argument("--storage-path", help="Folder that all machines share, for Ray's own state of the job.")
    parser.add_argument("script", help="The script, a path that is the same on all machines.")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="Arguments of the script.")
    return parser.parse_args(arguments)


def _run_script(config: dict[str, Any]) -> None:
    """Run the script in a worker, with the ranks in the environment as under torchrun.

    Raises:
        RuntimeError: The script exits with a code other than 0, which Ray would not see in a thread.
    """
    sys.argv = [config["script"], *config["arguments"]]
    try:
        runpy.run_path(config["script"], run_name="__main__")
    except SystemExit as error:
        if error.code not in {None, 0}:
            raise RuntimeError(f"{config['script']} exited with {error.code!r}") from error


if __name__ == "__main__":
    main()
