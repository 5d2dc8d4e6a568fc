"""Server that has loaded the bridge, and forks the programs of the register: a request and an answer are lines of JSON.

A request has the `id` of an assumption, its `folder`, and the environment variables of its `ranks`. The answer is the
exit code of rank 0.
"""

import json
import os
import signal
import sys
from pathlib import Path

from hpu_core import bridge
from hpu_doctor.verify import program, register

# After which a program is ended.
SECONDS = 60


def fork(name: str, folder: Path, variables: dict[str, str]) -> int:
    """Run a program in a forked process, and return the id of that."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        signal.alarm(SECONDS)
        os.chdir(folder)
        os.environ.update(variables)
        with Path("output.txt").open("ab") as output:
            os.dup2(output.fileno(), sys.stdout.fileno())
            os.dup2(output.fileno(), sys.stderr.fileno())
        code = 0 if program.run(register.find(name)) else 1
    finally:
        os._exit(code)


if __name__ == "__main__":
    bridge.load()
    for line in sys.stdin:
        request = json.loads(line)
        arguments = request["id"], Path(request["folder"])
        pids = [fork(*arguments, variables) for variables in request["ranks"]]
        _, status = os.waitpid(pids[0], 0)
        for pid in pids[1:]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
