"""Forks programs like `hpu_doctor.verify.program`, each under the mutation that MUTATION names."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import mutations

from hpu_doctor.verify import program

if __name__ == "__main__":
    program.serve(lambda: mutations.apply(os.environ["MUTATION"]) if os.environ["MUTATION"] else None)
