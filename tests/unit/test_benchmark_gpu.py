"""The GPU benchmark reports a machine without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu.py"


def test_a_machine_without_a_gpu_is_told_in_one_sentence(tmp_path: Path) -> None:
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, env=hidden, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "benchmarks/gpu.py measures a GPU, and torch finds none here; run it on a node that has one"
    )
    assert not list(tmp_path.iterdir()), "nothing is made first"
