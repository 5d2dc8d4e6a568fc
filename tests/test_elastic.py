"""Test of the page docs/start/elastic.md: a training goes on with the machine that is left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpu_testing import free_port

DOCS = Path(__file__).parent.parent / "docs" / "start"

# Runs the page's script; the second machine, its agent and its rank, is lost at step 12.
PROGRAM = """
import os
import signal
import sys
import warnings

from lightning import Callback

sys.path.insert(0, sys.argv[1])
import elastic


class Loss(Callback):
    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == 12 and os.environ["GROUP_RANK"] == "1":
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    elastic.main(Loss())
"""


@pytest.mark.slow
def test_training_goes_on_with_the_machine_that_is_left(tmp_path: Path) -> None:
    """Two agents of one rank each; one is killed, and the other begins at the last checkpoint, alone."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM, encoding="utf-8")
    port = free_port()
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=test"]
    # Seconds, for a test; the defaults are 30 and 15.
    command += ["--rdzv-conf=last_call_timeout=5,keep_alive_interval=1,keep_alive_max_attempt=3"]
    environment = os.environ | {"HPU_SIM_DEVICES": "1", "PT_HPU_LAZY_MODE": "0", "OMP_NUM_THREADS": "1"}
    agents = []
    for machine in ("first", "second"):
        options = {"HPU_SIM_MACHINE": f"{tmp_path.name}-{machine}", "HPU_SIM_RUNTIME_DIR": str(tmp_path / machine)}
        # Whether it is the machine of the rendezvous is no matter of the order in which they start.
        conf = f"{command[-1]},is_host={'true' if machine == 'first' else 'false'}"
        with (tmp_path / f"{machine}.log").open("wb") as log:
            agents.append(
                subprocess.Popen(
                    [*command[:-1], conf, str(script), str(DOCS)],
                    env=environment | options,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=tmp_path,
                )
            )
    try:
        code = agents[0].wait(240)
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
    output = (tmp_path / "first.log").read_text(encoding="utf-8")

    assert code == 0, output
    found = re.findall(r"rank \d of (\d) (begins|ends) at step (\d+)", output)
    assert found == [("2", "begins", "0"), ("1", "begins", "10"), ("1", "ends", "40")], output
