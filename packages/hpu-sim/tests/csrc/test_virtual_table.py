"""Change of a live object's virtual functions, on its own: only a CUDA build of torch needs it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

from hpu_sim.device.build import source_folder

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM: Final = """
#include <cstdio>
#include "virtual_table.h"

struct Interface {
  virtual ~Interface() = default;
  virtual bool is_built() const { return false; }
};

struct Implementation final : Interface {
  explicit Implementation(int devices) : devices(devices) {}
  bool is_built() const override { return true; }
  int devices;
};

int main() {
  auto* implementation = new Implementation(3);
  Interface* volatile hooks = implementation;
  std::printf("%d", hooks->is_built());
  static const Interface model;
  hpu_sim::set_virtual_table(*hooks, model);
  std::printf("%d%d", hooks->is_built(), implementation->devices);
}
"""


def test_virtual_calls_run_the_models_functions_and_the_object_keeps_its_state(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(_PROGRAM, encoding="utf-8")
    compile_program = [os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-Werror", f"-I{source_folder()}"]
    subprocess.run([*compile_program, "-o", tmp_path / "main", tmp_path / "main.cpp"], check=True)

    done = subprocess.run([tmp_path / "main"], stdout=subprocess.PIPE, text=True, check=True)

    assert done.stdout == "103"
