"""The example of pipeline parallelism learns what one process learns, stage by stage."""

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from eopipe.models import LINEAR_HEAD
from eopipe.models.networks import ConvNeXt

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "docs/examples/pipeline_parallel.py"
STEPS = 5
# Four micro-batches are summed one after the other, a batch at once; AdamW lets 1e-7 of that grow.
TOLERANCE = 1e-5
WORKER = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
import torch.distributed as dist
from safetensors.torch import save_file
spec = spec_from_file_location("example", sys.argv[1])
example = module_from_spec(spec)
spec.loader.exec_module(example)
dist.init_process_group("gloo")
for name in sorted(example.SCHEDULES):
    losses, stage = example.train(name, int(sys.argv[2]))
    tensors = {f"weight/{k}": v.detach().contiguous() for k, v in stage.named_parameters()}
    tensors |= {f"gradient/{k}": v.grad.contiguous() for k, v in stage.named_parameters()}
    tensors |= {"losses": example.torch.tensor(losses, dtype=example.torch.float64)} if losses else {}
    save_file(tensors, f"{sys.argv[3]}/{name}-{dist.get_rank()}.safetensors")
dist.barrier()
dist.destroy_process_group()
"""


@cache
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pipeline_parallel", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def piped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tensors of each schedule and rank after so many steps in two processes."""
    folder = tmp_path_factory.mktemp("piped")
    (folder / "worker.py").write_text(WORKER)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    line = [*torchrun, str(folder / "worker.py"), str(EXAMPLE), str(STEPS), str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    completed = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert completed.returncode == 0, completed.stderr
    return folder


@cache
def alone() -> tuple[list[float], ConvNeXt]:
    """The whole model in this process."""
    torch.manual_seed(0)
    model = ConvNeXt(example().BANDS, example().CLASSES, example().DEPTH, head=LINEAR_HEAD)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for step in range(STEPS):
        x_NCHW, y_NHW = example().batch_of(step)
        optimiser.zero_grad()
        loss = functional.cross_entropy(model(x_NCHW), y_NHW)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses, model


def stages(folder: Path, schedule: str, kind: str) -> dict[str, Tensor]:
    parts = [load_file(folder / f"{schedule}-{rank}.safetensors") for rank in (0, 1)]
    return {k.removeprefix(kind): v for part in parts for k, v in part.items() if k.startswith(kind)}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_two_stages_have_the_losses_of_one_process(piped: Path, schedule: str) -> None:
    losses = stages(piped, schedule, "losses")[""].tolist()
    assert losses == pytest.approx(alone()[0], abs=TOLERANCE)
    assert losses[0] - losses[-1] > 1000 * TOLERANCE


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_two_stages_have_the_gradients_and_weights_of_one_process(piped: Path, schedule: str) -> None:
    model = alone()[1]
    weights, gradients = (stages(piped, schedule, f"{kind}/") for kind in ("weight", "gradient"))
    torch.testing.assert_close(gradients, {k: v.grad for k, v in model.named_parameters()}, rtol=1e-3, atol=1e-5)
    together = ConvNeXt(example().BANDS, example().CLASSES, example().DEPTH, head=LINEAR_HEAD)
    together.load_state_dict(weights)
    expected = dict(model.named_parameters())
    torch.testing.assert_close(dict(together.named_parameters()), expected, rtol=1e-3, atol=1e-4)


def test_each_stage_has_its_own_half_of_the_parameters() -> None:
    first, second = ({name for name, _ in example().part_of(rank).named_parameters()} for rank in (0, 1))
    assert not first & second
    assert first | second == {name for name, _ in alone()[1].named_parameters()}
