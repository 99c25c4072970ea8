"""A worker that trains on made-up chips in several ways, one after the other: `torchrun worker_of_worlds.py PLAN OUT`.

PLAN is JSON: {name: {"settings": {...}, "model": "module:Class", "begin": STATE, "stop": STEP}}. The first worker
writes OUT/name.json with losses and a digest of the weights, and OUT/name.safetensors with the state.
"""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from eopipe.launch.world import World, exit_now, join_world
from eopipe.loader.loader import Batch
from eopipe.loader.prefetch import BatchRequest
from eopipe.models import Architecture
from eopipe.tasks.segmentation import ClassTables, confusion_matrix
from eopipe.training.losses import loss_of
from eopipe.training.parallel import MemoryFit, full_tensor, partition
from eopipe.training.step import TrainStep
from eopipe.training_job import Settings

PLAIN = {"width": 8, "epochs": 1, "batch": 8, "learning_rate": 1e-3}
BANDS, CHIP, COUNT, VAL = 3, 16, 43, 13


def chips(numbers: np.ndarray, split: str = "train") -> Batch:
    """Chips that can be learned: class 1 where the first band is above a mean of its surroundings; some ignored."""
    images, labels = [np.zeros((0, BANDS, CHIP, CHIP), np.float32)], [np.zeros((0, CHIP, CHIP), np.int64)]
    for number in numbers:
        rng = np.random.default_rng((int(number), split == "val"))
        image = rng.normal(size=(1, BANDS, CHIP, CHIP)).astype(np.float32)
        label = (image[:, 0] + image[:, 1] > 0).astype(np.int64)
        # Chips have very different numbers of labelled pixels, so a mean of means would not do.
        label[:, : int(rng.integers(0, CHIP))] = 255
        images.append(image)
        labels.append(label)
    return Batch(
        torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate(labels)), BatchRequest(split, numbers)
    )


def train(world: World, plan: dict[str, Any], out: Path) -> dict[str, Any]:
    settings = Settings(**PLAIN | plan["settings"])
    torch.manual_seed(settings.seed)
    # With the hidden layer of the spectral head AdamW amplifies the order of sums, and the golden curve must be exact.
    sizes = (BANDS, 2, settings.width, settings.depth)
    model = Architecture(settings.architecture, *sizes, (), ("head=linear",)).build()
    fit = MemoryFit(settings.accumulate, plan.get("recompute", False))
    train_step = TrainStep(model, settings, loss_of(settings), world, fit)
    first = 0
    if "begin" in plan:
        state: dict[str, dict[str, torch.Tensor]] = {}
        for key, value in load_file(plan["begin"]).items():
            part, name = key.split("/", 1)
            state.setdefault(part, {})[name] = value
        train_step.load(state)
        first = plan["first"]
    losses, grad_norms, left_out = [], [], 0
    for step in range(first, plan.get("steps", 20)):
        numbers = np.random.default_rng((settings.seed, step)).permutation(COUNT)[: settings.batch]
        part = np.concatenate(partition(numbers, settings, world.rank, world.size))
        batch = chips(part)
        if plan.get("ignored") == step:
            batch = replace(batch, labels_NHW=torch.full_like(batch.labels_NHW, 255))
        # Of sharded weights a digest costs more than a step.
        before = digest(train_step) if plan.get("ignored") == step else None
        result = train_step(batch, step, settings.learning_rate, torch.zeros(()))
        assert result.is_finite, result
        if before:
            assert digest(train_step) == before
        left_out += result.is_skipped
        losses.append(result.loss)
        grad_norms.append(result.grad_norm)
    state = {part: {name: full_tensor(v) for name, v in values.items()} for part, values in train_step.state().items()}
    if world.is_first:
        flat = {f"{part}/{name}": v.contiguous() for part, values in state.items() for name, v in values.items()}
        save_file(flat, out.with_suffix(".safetensors"))
    return {
        "losses": losses,
        "grad_norms": grad_norms,
        "digest": digest(train_step),
        "passes": train_step.fit.micro_batches,
        "recompute": train_step.fit.recompute,
        "left_out": left_out,
        "val": measure(train_step, settings, world),
        # Squared lengths of the averages, which tell any two apart that differ by more than their tolerance.
        "averages": [float(value.double().square().sum()) for _, value in sorted(state.get("ema", {}).items())],
    }


def measure(train_step: TrainStep, settings: Settings, world: World) -> dict[str, Any]:
    counts = np.zeros((2, 2), np.int64)
    with train_step.evaluation() as model:
        for start in range(0, VAL, settings.batch):
            group = np.arange(VAL)[start : start + settings.batch]
            for part in partition(group, settings, world.rank, world.size):
                batch = chips(part, "val")
                labelled = batch.labels_NHW != 255
                predicted = model(batch.images_NCHW).argmax(1)
                counts += confusion_matrix(batch.labels_NHW[labelled].numpy(), predicted[labelled].numpy(), 2)
    return ClassTables(("0", "1")).document(world.sum(torch.from_numpy(counts)).numpy().ravel())


def digest(train_step: TrainStep) -> str:
    sums = hashlib.sha256()
    for part, values in sorted(train_step.state().items()):
        for _, value in sorted(values.items()):
            if part != "engine":
                sums.update(full_tensor(value).detach().contiguous().numpy().tobytes())
    return sums.hexdigest()[:16]


def main() -> None:
    plan, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    world = join_world("cpu", 60, 1)
    for name, settings in plan.items():
        try:
            result = train(world, settings, out / name)
        except Exception as error:
            result = {"error": type(error).__name__, "reason": str(error)}
            if not settings.get("may_fail"):
                raise
        if world.is_first:
            (out / f"{name}.json").write_text(json.dumps(result))
    exit_now(0)


if __name__ == "__main__":
    main()
