"""How the gradients of a step become new weights."""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm
from torch.optim import AdamW

from eopipe.launch.world import World
from eopipe.loader.loader import Batch
from eopipe.telemetry.timing import phase
from eopipe.training.amp import LossScale, autocast
from eopipe.training.ema import Average
from eopipe.training.losses import Loss
from eopipe.training.memory_fit import Fit, explained, trouble
from eopipe.training.parallel import Averaged, Fixed, Together, gathered, like, place, recompute, whole
from eopipe.training.partition import cut, even, seed_of, shards_of
from eopipe.training_job import Settings

log = logging.getLogger("eopipe")
State = dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class Told:
    """What a step measured over all workers: mean loss, norm of its gradient, and the sum of wishes to stop.

    A step is left out where fp16 overflowed, so that the next one may try with a smaller scale.
    """

    loss: float
    steepness: float
    stop: float
    left_out: bool = False

    @property
    def finite(self) -> bool:
        """Whether training may go on from it."""
        return math.isfinite(self.loss) and (self.left_out or math.isfinite(self.steepness))


class Engine:
    """A model and its optimiser in a world of workers. `fit` is where the search for what fits into memory begins."""

    def __init__(self, model: nn.Module, settings: Settings, loss: Loss, world: World, fit: Fit | None = None) -> None:
        self.settings, self.world, self.fit = settings, world, fit or Fit(settings.accumulate)
        self.model = place(model, settings, world)
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        # A fused step is one kernel instead of hundreds; it needs a GPU to gain from it.
        fused = world.device.type == "cuda" or None
        self.optimiser = AdamW(self.weights, settings.learning_rate, weight_decay=settings.weight_decay, fused=fused)
        self.scale = LossScale() if settings.precision == "fp16" else None
        self.autocast = partial(autocast, settings.precision, world.device)
        self.loss = loss
        self.average = Average(self.model, settings.ema) if settings.ema else None
        self._together: Together | None = None

    def step(self, batch: Batch, at: int, rate: float, asked: Tensor) -> Told:
        """Take step number `at` over the global batch; the loss is the mean over all its labelled pixels.

        Nothing changes where the loss or its gradient is not finite, or no pixel has a label.
        """
        # DDP looks at the weights once, so they must be restored by then.
        self._together = self._together or self._begin(batch)
        self.optimiser.zero_grad()
        with explained(at):
            learn = partial(self._learn, asked, self._factor(batch))
            sums = self._together.gradients(self._parts(batch), learn, partial(self._draw, at))
        loss, weight, stop = sums.tolist()
        # The sum over workers of what they learned from is known only now.
        mean = self._together.share / (self._factor(batch) * max(weight, 1e-12))
        return self._update(Told(loss / max(weight, 1e-12), 0.0, stop), mean, rate, nothing=not weight)

    def _parts(self, batch: Batch) -> list[Batch]:
        """What goes through the model at once: virtual shards, or the passes of this worker's batch."""
        count = len(batch.wanted.numbers)
        if self.settings.deterministic:
            return cut(batch, even(count, len(shards_of(self.world.rank, self.world.size, self.settings.shards))))
        return cut(batch, even(count, self.fit.passes))

    def _draw(self, at: int, stream: int) -> None:
        torch.manual_seed(seed_of(self.settings.seed, at, stream))

    def _factor(self, batch: Batch) -> float:
        """From a sum to about a mean, so that gradients keep within the range of fp16; the same for all parts."""
        scale, share = self.scale.value if self.scale else 1.0, self._together.share if self._together else 1
        pixels: int = self.settings.batch * math.prod(batch.labels_NHW.shape[1:])
        return scale * share / pixels

    def _learn(self, asked: Tensor, factor: float, module: nn.Module, part: Batch) -> Tensor:
        """Forward and backward; the sum of the loss, what it is the sum of, and the wish to stop."""
        layout = torch.channels_last if self.settings.channels_last else torch.preserve_format
        with phase("forward"), self.autocast():
            outputs = module(part.images_NCHW.contiguous(memory_format=layout))
        loss, weight = self.loss(outputs, part.labels_NHW)
        with phase("backward"):
            (loss * factor).backward()  # type: ignore[no-untyped-call]
        return torch.stack([loss.detach().double(), weight.double(), asked.double()])

    def _update(self, told: Told, mean: float, rate: float, nothing: bool) -> Told:
        """Scale the gradient to that of the mean, clip it, and step."""
        grads = [w.grad for w in self.weights if w.grad is not None]
        steepness = float(whole(get_total_norm(grads))) * mean
        left_out = self.scale is not None and math.isfinite(told.loss) and self.scale.overflows(steepness)
        told = replace(told, steepness=steepness, left_out=left_out)
        if told.finite and not left_out and not nothing:
            clipped = min(1.0, (self.settings.clip or math.inf) / max(steepness, 1e-12))
            torch._foreach_mul_(grads, mean * clipped)
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            with phase("optimiser"):
                self.optimiser.step()
                if self.average:
                    self.average.update()
        return told

    def _begin(self, batch: Batch) -> Together:
        """Rehearse until it goes well: with what compiles, and with as many passes as memory asks for."""
        before = [buffer.clone() for buffer in self.model.buffers()]
        example = self._example(batch)
        compiled, largest = self.settings.compile, len(example.labels_NHW)
        self.fit = replace(self.fit, passes=min(self.fit.passes, largest))
        if self.fit.recompute:
            recompute(self.model)
        while True:
            module = cast(nn.Module, torch.compile(self.model)) if compiled else self.model
            part = cut(example, even(largest, self.fit.passes))[0]
            memory, failed = trouble(partial(self._rehearse, module, part), self.world, compiled)
            compiled = compiled and not failed
            if memory:
                self._shrink(largest)
            if not memory and not failed:
                break
        together = self._unite(module, part)
        for buffer, was in zip(self.model.buffers(), before, strict=True):
            buffer.data.copy_(was)
        return together

    def _example(self, batch: Batch) -> Batch:
        """As many empty chips as the fullest worker has, so that all rehearse the same."""
        count = torch.tensor(float(len(batch.wanted.numbers)), device=self.world.device)
        parts = self.settings.shards if self.settings.deterministic else self.world.size
        largest = -(-int(self.world.sum(count)) // parts)
        images, labels = batch.images_NCHW, batch.labels_NHW
        wanted = replace(batch.wanted, numbers=np.zeros(largest, np.int64))
        return replace(
            batch,
            images_NCHW=images.new_zeros(largest, *images.shape[1:]),
            labels_NHW=labels.new_zeros(largest, *labels.shape[1:]),
            wanted=wanted,
        )

    def _rehearse(self, module: nn.Module, part: Batch) -> None:
        """Forward and backward with as much memory in use as later on: moments, and what is sent to others."""
        ballast = [torch.empty_like(w) for w in self.weights * 3] if self.world.device.type == "cuda" else []
        self.optimiser.zero_grad()
        self._learn(torch.zeros((), device=self.world.device), self._factor(part), module, part)
        del ballast

    def _shrink(self, largest: int) -> None:
        was, self.fit = self.fit, self.fit.smaller(self.settings, largest)
        if self.fit.recompute and not was.recompute:
            recompute(self.model)
        if self.world.is_first:
            log.warning("event=out-of-memory passes=%d recompute=%s", self.fit.passes, self.fit.recompute)

    def _unite(self, module: nn.Module, part: Batch) -> Together:
        if self.settings.deterministic:
            return Fixed(module, self.model, self.world, self.settings.shards)
        if self.settings.strategy == "fsdp" or self.world.size == 1:
            return Averaged(module, self.world)
        shared = DistributedDataParallel(module)
        # DDP orders its buckets by its first pass; that must not be another one after a resume.
        self._rehearse(shared, part)
        return Averaged(shared, self.world)

    @property
    def ddp(self) -> DistributedDataParallel | None:
        """The model in DDP; None without DDP and before the first step."""
        module = self._together.module if self._together else None
        return module if isinstance(module, DistributedDataParallel) else None

    def state(self) -> State:
        """All that a checkpoint holds of this engine, by part and name, as it lies: dealt out to workers by FSDP2."""
        moments = self.optimiser.state_dict()["state"]
        flat = {f"{number}.{name}": v for number, values in moments.items() for name, v in values.items()}
        model = dict(self.model.state_dict())
        own = {"passes": torch.tensor(self.fit.passes)} | (self.scale.state() if self.scale else {})
        parts = {"model": model, "optimiser": {k: torch.as_tensor(v) for k, v in flat.items()}, "engine": own}
        if self.average:
            own["averaged"] = torch.tensor(self.average.steps)
            parts["ema"] = dict(self.average.weights)
        return parts

    def load(self, state: State) -> None:
        """Take over what `state` gave; the optimiser's tensors are named as `12.exp_avg`."""
        kept = self.model.state_dict()
        self.model.load_state_dict({k: like(v, kept[k]) if k in kept else v for k, v in state["model"].items()})
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in state["optimiser"].items():
            number, name = key.split(".", 1)
            weight = self.weights[int(number)]
            moments.setdefault(int(number), {})[name] = like(value, weight) if value.shape == weight.shape else value
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.fit = replace(self.fit, passes=int(state["engine"]["passes"]))
        if self.scale:
            self.scale.load(state["engine"])
        if self.average:
            mean = {name: like(value, kept[name]) for name, value in state["ema"].items()}
            self.average.load(mean, int(state["engine"]["averaged"]))

    @contextmanager
    def judging(self) -> Iterator[nn.Module]:
        """The model as it predicts, without gradients; each worker may ask it as often as it likes."""
        self.model.eval()
        averaged = self.average.swapped() if self.average else nullcontext()
        with averaged, gathered(self.model, self.world), torch.no_grad():
            yield self.model
        self.model.train()

    def losses(self, parts: list[Batch]) -> list[float]:
        """The summed loss of each part as the model is now; nothing is learned from it."""
        with self.judging() as model, self.autocast():
            return [float(self.loss(model(part.images_NCHW), part.labels_NHW)[0]) for part in parts]
