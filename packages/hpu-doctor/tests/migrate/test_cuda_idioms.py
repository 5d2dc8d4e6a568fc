"""Tests of the search for CUDA idioms, and of their replacements."""

import ast
from pathlib import Path

import pytest

from hpu_doctor.migrate import program
from hpu_doctor.migrate.finder import find

_TORCH = "import torch\nimport torch.nn as nn\n"

# A line, and what `--fix` makes of it.
_FIXED = [
    ("x = x.cuda()", 'x = x.to("hpu")'),
    ("x = x.cuda(0, non_blocking=True)", 'x = x.to("hpu", non_blocking=True)'),
    ("x = (x  # a comment\n    .cuda())", 'x = (x  # a comment\n    .to("hpu"))'),
    ("x = y.cuda().cuda()", 'x = y.to("hpu").to("hpu")'),
    ('s = "\u00e9"; x.cuda()', 's = "\u00e9"; x.to("hpu")'),
    ('x = torch.ones(2, device="cuda")', 'x = torch.ones(2, device="hpu")'),
    ("x = torch.device('cuda:1')", 'x = torch.device("hpu")'),
    ('x = torch.device("cuda", rank)', 'x = torch.device("hpu")'),
    ('x = x.to(f"cuda:{rank}")', 'x = x.to("hpu")'),
    ('torch.load(p, map_location="cuda")', 'torch.load(p, map_location="hpu")'),
    ('torch.autocast("cuda", dtype=t)', 'torch.autocast("hpu", dtype=t)'),
    ('torch.autocast(device_type="cuda")', 'torch.autocast(device_type="hpu")'),
    ('torch.amp.GradScaler("cuda")', 'torch.amp.GradScaler("hpu")'),
    ("torch.cuda.synchronize()", "torch.hpu.synchronize()"),
    ("f(torch.cuda.max_memory_allocated())", "f(torch.hpu.max_memory_allocated())"),
    ("torch.cuda.manual_seed_all(seed=1)", "torch.hpu.manual_seed_all(seed=1)"),
    ("reset = torch.cuda.reset_peak_memory_stats", "reset = torch.hpu.reset_peak_memory_stats"),
    ("torch.cuda.empty_cache()", "pass"),
    ("x = torch.cuda.is_bf16_supported()", "x = True"),
    ('torch.distributed.init_process_group("nccl")', 'torch.distributed.init_process_group("hccl")'),
    ('DDPStrategy(process_group_backend="nccl")', 'DDPStrategy(process_group_backend="hccl")'),
    ('BACKEND = "nccl"', 'BACKEND = "hccl"'),
    (
        "nn.parallel.DistributedDataParallel(m, device_ids=[0], output_device=0)",
        "nn.parallel.DistributedDataParallel(m, device_ids=None, output_device=None)",
    ),
    ("Trainer(accelerator='gpu', devices=2)", 'Trainer(accelerator="auto", devices=2)'),
    ('options = {"accelerator": "gpu"}', 'options = {"accelerator": "auto"}'),
    ('parser.add_argument("--accelerator", default="gpu")', 'parser.add_argument("--accelerator", default="auto")'),
    ('DataLoader(d, pin_memory_device="cuda")', 'DataLoader(d, pin_memory_device="hpu")'),
]

# A line with something to change by hand, and a word of the advice.
_BY_HAND = [
    ("x = x.cuda(device)", ".to("),
    ('if x.device.type == "cuda": pass', "hpu"),
    ("if x.is_cuda: pass", "device.type"),
    ("torch.cuda.set_device(rank)", "local rank"),
    ("torch.cuda.get_device_properties(0).total_memory", "Limit"),
    ("torch.cuda.memory_allocated(0)", "torch.hpu"),
    ("torch.cuda.Stream()", "torch.hpu.Stream"),
    ("torch.cuda.nvtx.range_push('a')", "record_function"),
    ("x = torch.cuda.FloatTensor(2)", "torch.hpu"),
    ("torch.backends.cudnn.benchmark = True", "no effect"),
    ("with torch.cuda.amp.autocast(dtype=torch.float16): pass", "bfloat16"),
    ("clip_grad_norm_(p, 1.0, foreach=True)", "leave it out"),
    ("torch.optim.AdamW(p, fused=True)", "HPUKernels"),
    ('os.environ["NCCL_P2P_DISABLE"] = "1"', "HCCL"),
    ("m = nn.DataParallel(m)", "one process per card"),
    ("m = torch.compile(m)", "HPUCompile"),
    ("m = torch.compile(m, backend='inductor')", "HPUCompile"),
    ("m = m.half()", "bfloat16"),
    ("op = torch.distributed.ReduceOp.AVG", "divide"),
    ("m = nn.SyncBatchNorm.convert_sync_batchnorm(m)", "GroupNorm"),
    ("Trainer(sync_batchnorm=True)", "GroupNorm"),
    ("Trainer(precision='16-mixed')", "bf16-mixed"),
    ("import apex", "hpex"),
    ("from flash_attn import flash_attn_func", "HPUKernels"),
    ("import pynvml", "pyhlml"),
    ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "HABANA_VISIBLE_MODULES"),
    ("from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('a', [])", "port by hand"),
]

_NOT_CUDA = [
    'x = x.to("hpu")',
    "x = x.to(device)",
    'text = "trained on cuda"',
    "x = cuda.thing()",
    "barracuda = 1",
    "m = torch.compile(m, backend='hpu_backend')",
    "nn.parallel.DistributedDataParallel(m, device_ids=None)",
    "Trainer(accelerator='auto', precision='bf16-mixed')",
    "x = torch.half",
    "import application",
    "from .apex import amp",
]


def _fix(text: str, tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(_TORCH + text + "\n", encoding="utf-8")
    return program.fix(program.read(path)).text.removeprefix(_TORCH).removesuffix("\n")


@pytest.mark.parametrize(("line", "expected"), _FIXED)
def test_safe_idiom_is_replaced(line: str, expected: str, tmp_path: Path) -> None:
    assert _fix(line, tmp_path) == expected
    assert find(ast.parse(_TORCH + expected)) == []


@pytest.mark.parametrize(("line", "word"), _BY_HAND)
def test_idiom_that_depends_on_the_program_is_explained(line: str, word: str, tmp_path: Path) -> None:
    usages = find(ast.parse(_TORCH + line))

    assert any(word in usage.hint for usage in usages)
    assert usages[0].line == 3 + ("CUDAExtension(" in line) * (usages[0].line - 3)
    assert _fix(line, tmp_path) == line


@pytest.mark.parametrize("line", _NOT_CUDA)
def test_other_lines_are_left_alone(line: str) -> None:
    assert find(ast.parse(_TORCH + line)) == []


@pytest.mark.parametrize(
    "text",
    [
        "from torch.cuda.amp import autocast\nwith autocast(): pass",
        "from torch.cuda import amp\nwith amp.autocast(): pass",
        "import torch.cuda.amp as amp\nwith amp.autocast(): pass",
    ],
)
def test_imported_names_are_followed(text: str, tmp_path: Path) -> None:
    assert _fix(text, tmp_path).endswith('with torch.autocast("hpu", dtype=torch.bfloat16): pass')


def test_choice_of_the_device_asks_for_a_gaudi(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        '"""Train."""\nfrom __future__ import annotations\nimport torch\n\n'
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    )

    assert program.fix(program.read(path)).text == (
        '"""Train."""\nfrom __future__ import annotations\nimport torch\nimport hpu_core\n\n'
        'device = torch.device("hpu" if hpu_core.is_available() else "cpu")\n'
    )


def test_edit_within_another_is_made_as_well(tmp_path: Path) -> None:
    assert _fix("x.cuda(non_blocking=torch.cuda.is_available())", tmp_path).endswith(
        'x.to("hpu", non_blocking=hpu_core.is_available())'
    )
