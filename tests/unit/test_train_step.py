"""One step of a training in this process: its gradient, and a validation that ends early."""

from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from test_loader import CPU, make_job
from torch import nn
from torch.nn import functional
from torch.nn.utils import get_total_norm

from eopipe.launch.world import END_TRAINING, StopRequest, World
from eopipe.loader.loader import Batch
from eopipe.loader.prefetch import BatchRequest
from eopipe.tiles.store import NO_LABEL
from eopipe.training.loop import TrainingLoop
from eopipe.training.losses import loss_of
from eopipe.training.step import TrainStep
from eopipe.training_job import Settings

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
