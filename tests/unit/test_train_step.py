"""One step of a training: its gradient in one and in two workers, and what a signal leaves behind."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_loader import CPU, make_job
from torch import distributed, multiprocessing, nn
from torch.nn import functional
from torch.nn.utils import get_total_norm

from eopipe.checkpoints.manager import CheckpointManager
from eopipe.errors import PreemptedError
from eopipe.launch.world import END_TRAINING, RESTART_SIGNAL, STOP_SIGNALS, StopRequest, World
from eopipe.loader.loader import Batch
from eopipe.loader.prefetch import BatchRequest
from eopipe.tiles.store import NO_LABEL
from eopipe.training.loop import TrainingLoop
from eopipe.training.losses import loss_of
from eopipe.training.parallel import stream_seed
from eopipe.training.step import TrainStep
from eopipe.training_job import Settings, TrainingLength

ALONE = World(0, 1, CPU)


def made_up_batch() -> Batch:
    """Chips of which some pixels have no label."""
    generator = torch.Generator().manual_seed(1)
    images, labels = torch.rand(6, 3, 8, 8, generator=generator), torch.randint(0, 2, (6, 8, 8), generator=generator)
    labels[:, :2] = NO_LABEL
    return Batch(images, labels, BatchRequest("train", np.arange(6)))


@pytest.mark.parametrize("clip", [None, 1e-3, 1e3])
@pytest.mark.parametrize("parts", [{}, {"accumulate": 2}, {"deterministic": True, "shards": 3}], ids=str)
def test_the_gradient_of_a_step_is_that_of_the_mean_loss_cut_to_the_length_of_the_setting(
    clip: float | None, parts: dict[str, int]
) -> None:
    settings, batch = Settings(epochs=1, batch=6, learning_rate=1e-3, clip=clip, **parts), made_up_batch()
    torch.manual_seed(0)
    model = nn.Conv2d(3, 2, 1)
    # In double precision, and by the formula instead of by sums of parts.
    exact = deepcopy(model).double()
    loss = functional.cross_entropy(exact(batch.images_NCHW.double()), batch.labels_NHW, ignore_index=NO_LABEL)
    loss.backward()
    gradients = [weight.grad for weight in exact.parameters() if weight.grad is not None]
    norm = float(get_total_norm(gradients))
    assert 1e-3 < norm < 1e3, "one clip cuts it and one does not"

    result = TrainStep(model, settings, loss_of(settings), ALONE)(batch, 0, 1e-3, torch.zeros(()))

    assert (result.loss, result.grad_norm) == (pytest.approx(loss.item(), rel=1e-5), pytest.approx(norm, rel=1e-5))
    share = min(1.0, clip / norm) if clip else 1.0
    for weight, gradient in zip(model.parameters(), gradients, strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad.double(), gradient * share, rtol=1e-4, atol=1e-8)


def test_a_new_head_has_a_learning_rate_of_its_own_also_after_a_resume() -> None:
    settings = Settings(epochs=1, batch=6, learning_rate=1e-3, head_learning_rate=2e-2, weight_decay=0.0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.ReLU(), nn.Conv2d(2, 2, 1))

    def changes(step: TrainStep) -> dict[str, float]:
        before = {name: value.detach().clone() for name, value in step.model.named_parameters()}
        step(made_up_batch(), 0, 1e-3, torch.zeros(()))
        return {
            name: float((value.detach() - before[name]).abs().max()) for name, value in step.model.named_parameters()
        }

    # The head is in the middle, so the order of the weights is not that of the model.
    first = TrainStep(model, settings, loss_of(settings), ALONE, new_head=("2.weight", "2.bias"))
    # The first step of Adam is as long as the learning rate, where there is a gradient.
    for name, change in changes(first).items():
        assert change == pytest.approx(2e-2 if name.startswith("2.") else 1e-3, rel=1e-3), name
    state = deepcopy(first.state())
    second = TrainStep(deepcopy(model), settings, loss_of(settings), ALONE, new_head=("2.weight", "2.bias"))
    second.load(state)
    assert changes(second) == changes(first)


class Noise(nn.Conv2d):
    """A model that keeps the random numbers that it drew."""

    drawn: torch.Tensor

    def forward(self, images_NCHW: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = super().forward(images_NCHW)
        self.drawn = torch.rand(8)
        return outputs


@pytest.mark.parametrize("device", ["", "cuda", "xpu", "mtia", "mps"])
def test_a_step_seeds_the_processor_and_each_device_in_use_and_formats_no_stack(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    settings, seeds = Settings(epochs=1, batch=6, learning_rate=1e-3), []
    model = Noise(3, 2, 1)
    step = TrainStep(model, settings, loss_of(settings), ALONE)
    step(made_up_batch(), 0, 1e-3, torch.zeros(()))
    stacks = []
    monkeypatch.setattr("traceback.format_stack", lambda *_: stacks.append(1) or [])
    if device == "mps":
        monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
        monkeypatch.setattr("torch.mps.manual_seed", seeds.append)
    elif device:
        monkeypatch.setattr(f"torch.{device}.is_initialized", lambda: True)
        monkeypatch.setattr(f"torch.{device}.manual_seed_all", seeds.append)
    step(made_up_batch(), 7, 1e-3, torch.zeros(()))
    assert seeds == ([stream_seed(settings.seed, 7, 0)] if device else [])
    assert device or not stacks
    torch.manual_seed(stream_seed(settings.seed, 7, 0))
    assert torch.equal(model.drawn, torch.rand(8))


def train_half(rank: int, folder: str) -> None:
    """One of two workers, with half of the chips; the first writes the gradient that both have."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    whole, half = made_up_batch(), slice(3 * rank, 3 * rank + 3)
    batch = Batch(whole.images_NCHW[half], whole.labels_NHW[half], BatchRequest("train", whole.request.numbers[half]))
    settings = Settings(epochs=1, batch=6, learning_rate=1e-3)
    torch.manual_seed(0)
    model = nn.Conv2d(3, 2, 1)
    TrainStep(model, settings, loss_of(settings), World(rank, 2, CPU))(batch, 0, 1e-3, torch.zeros(()))
    if rank == 0:
        torch.save([weight.grad for weight in model.parameters()], f"{folder}/gradients.pt")
    distributed.destroy_process_group()


def test_the_gradient_of_two_workers_is_that_of_the_mean_loss_over_the_pixels_of_both(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, batch = nn.Conv2d(3, 2, 1), made_up_batch()
    functional.cross_entropy(model(batch.images_NCHW), batch.labels_NHW, ignore_index=NO_LABEL).backward()
    multiprocessing.start_processes(train_half, (str(tmp_path),), nprocs=2, start_method="spawn")
    gradients = torch.load(tmp_path / "gradients.pt", weights_only=True)
    for weight, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(gradient, weight.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_each_signal_that_asks_to_stop_is_heard(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EOPIPE_LEAVES", raising=False)
    before = {each: signal.getsignal(each) for each in (*STOP_SIGNALS, RESTART_SIGNAL)}
    stop = StopRequest()
    try:
        stop.listen()
        os.kill(os.getpid(), number)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert (stop.local, stop.signal_number) == (END_TRAINING, number)


def test_a_signal_leaves_a_checkpoint_of_the_step_that_was_taken(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    job = job.replace(knobs=replace(job.knobs, checkpoint_every=100), length=TrainingLength(100, 100, 1, 1.0))
    loop = TrainingLoop(job, ALONE, StopRequest(local=END_TRAINING))
    with closing(loop.loader), pytest.raises(PreemptedError, match="stopped at step 1, the state is saved"):
        loop.run()
    restored = CheckpointManager(job, ALONE).restore()
    assert restored is not None
    assert restored[0].step == 1


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_validation_ends_with_the_batch_during_which_a_signal_comes_and_counts_nothing_then(
    tmp_path: Path, is_stopping: bool
) -> None:
    loop = TrainingLoop(make_job(tmp_path), ALONE, StopRequest())
    with closing(loop.loader):
        requests = loop.validation_requests()
        assert len(requests) > 2
        batches = loop.loader.stream(requests)
        batch_count = 0

        def with_signal() -> Iterator[Batch]:
            nonlocal batch_count
            for batch in batches:
                batch_count += 1
                loop.stop.local = END_TRAINING if is_stopping else 0.0
                yield batch

        scores = loop.validate(with_signal())
    assert (scores is None, batch_count) == ((True, 1) if is_stopping else (False, len(requests)))
    assert loop.stop.ends_training == is_stopping
