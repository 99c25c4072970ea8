"""One training step in full or mixed precision: forward, backward, gradient clipping, optimiser step, EMA."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm
from torch.optim import AdamW

from eopipe.launch.world import World
from eopipe.loader.loader import Batch
from eopipe.telemetry.timing import phase
from eopipe.training.losses import Loss
from eopipe.training.parallel import (
    DeterministicReduce,
    GradientSync,
    MemoryFit,
    empty_batch,
    even_sizes,
    explain_out_of_memory,
    fit_memory,
    full_tensor,
    gathered_weights,
    place_model,
    shard_like,
    shards_of_rank,
    split_batch,
    stream_seed,
)
from eopipe.training_job import Settings

State = dict[str, dict[str, Tensor]]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
GROWTH_INTERVAL = 2000


@dataclass(frozen=True)
class StepResult:
    """What a step measured over all workers: mean loss, norm of its gradient, and the sum of the stop requests.

    A step is skipped where fp16 overflowed, so that the next one tries with a smaller loss scale.
    """

    loss: float
    grad_norm: float
    stop: float
    is_skipped: bool = False

    @property
    def is_finite(self) -> bool:
        """Whether training may continue from it."""
        return math.isfinite(self.loss) and (self.is_skipped or math.isfinite(self.grad_norm))


class TrainStep:
    """A model and its optimiser in a world of workers. `fit` is where the search for what fits into memory starts.

    Weights with a name in `new_head` have a learning rate of their own, `head_learning_rate`.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: Settings,
        loss: Loss,
        world: World,
        fit: MemoryFit | None = None,
        new_head: Sequence[str] = (),
    ) -> None:
        self.settings, self.loss, self.world = settings, loss, world
        self.fit = fit or MemoryFit(settings.accumulate)
        self.model = place_model(model, settings, world)
        body, head = (
            [p for name, p in self.model.named_parameters() if p.requires_grad and (name in new_head) == is_head]
            for is_head in (False, True)
        )
        self.weights = body + head
        # A fused step is one kernel instead of hundreds; it needs a GPU to gain from it.
        fused = world.device.type == "cuda" or None
        head_rate = settings.head_learning_rate or settings.learning_rate
        groups = [{"params": body, "share": 1.0}, {"params": head, "share": head_rate / settings.learning_rate}]
        groups = [group for group in groups if group["params"]]
        self.optimiser = AdamW(groups, settings.learning_rate, weight_decay=settings.weight_decay, fused=fused)
        self.scale = LossScale() if settings.precision == "fp16" else None
        self.autocast = partial(autocast, settings.precision, world.device)
        self.ema = EMA(self.model, settings.ema) if settings.ema else None
        self._sync: GradientSync | None = None

    def __call__(self, batch: Batch, step: int, learning_rate: float, stop: Tensor) -> StepResult:
        """Take step number `step` over the global batch; the loss is the mean over all its labelled pixels.

        Nothing changes where the loss or its gradient is not finite, or no pixel has a label.
        """
        # DDP looks at the weights once, so a checkpoint must be restored by now.
        self._sync = sync = self._sync or self._prepare(batch)
        scale, sums = self._scale_of(sync, batch), []
        self.optimiser.zero_grad()
        with explain_out_of_memory(step):
            for micro_batch in sync.micro_batches(self._split(batch), partial(self._seed, step)):
                loss, weight = self.forward_backward(sync.module, micro_batch, scale)
                sums.append(torch.stack([loss, weight, stop.double()]))
            total_loss, total_weight, stops = sync.total(sums).tolist()
        # Gradients are of a scaled sum; the number of labelled pixels of all workers is known only now.
        to_mean = sync.divisor / (scale * max(total_weight, 1e-12))
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        grad_norm = float(full_tensor(get_total_norm(gradients))) * to_mean
        loss_mean = total_loss / max(total_weight, 1e-12)
        overflows = self.scale is not None and math.isfinite(loss_mean) and self.scale.overflows(grad_norm)
        result = StepResult(loss_mean, grad_norm, stops, is_skipped=overflows)
        if result.is_finite and not overflows and total_weight:
            clipping = min(1.0, (self.settings.clip or math.inf) / max(grad_norm, 1e-12))
            torch._foreach_mul_(gradients, to_mean * clipping)
            for group in self.optimiser.param_groups:
                group["lr"] = learning_rate * group["share"]
            with phase("optimiser"):
                self.optimiser.step()
                if self.ema:
                    self.ema.update()
        return result

    def forward_backward(self, module: nn.Module, micro_batch: Batch, scale: float) -> tuple[Tensor, Tensor]:
        """Add the scaled gradient of a micro-batch; gives the sum of its loss and the weight of the sum (float64)."""
        layout = torch.channels_last if self.settings.channels_last else torch.preserve_format
        with phase("forward"), self.autocast():
            outputs = module(micro_batch.images_NCHW.contiguous(memory_format=layout))
        loss, weight = self.loss(outputs, micro_batch.labels_NHW)
        with phase("backward"):
            (loss * scale).backward()  # type: ignore[no-untyped-call]
        return loss.detach().double(), weight.double()

    def _split(self, batch: Batch) -> list[Batch]:
        """What goes through the model at once: the virtual shards, or the micro-batches of this worker's batch."""
        count, parts = len(batch.request.numbers), self.fit.micro_batches
        if self.settings.deterministic:
            parts = len(shards_of_rank(self.world.rank, self.world.size, self.settings.shards))
        return split_batch(batch, even_sizes(count, parts))

    def _seed(self, step: int, stream: int) -> None:
        seed, kinds = stream_seed(self.settings.seed, step, stream), (torch.cuda, torch.xpu, torch.mtia)
        if torch.backends.mps.is_available() or any(kind.is_initialized() for kind in kinds):
            torch.manual_seed(seed)
        else:
            # The same numbers; torch.manual_seed formats a stack trace for each kind of device that is not in use.
            torch.default_generator.manual_seed(seed)

    def _scale_of(self, sync: GradientSync | None, batch: Batch) -> float:
        """From a sum to about a mean, so that gradients stay in the range of fp16; the same for all micro-batches."""
        loss_scale, divisor = self.scale.value if self.scale else 1.0, sync.divisor if sync else 1
        pixels: int = self.settings.batch * math.prod(batch.labels_NHW.shape[1:])
        return loss_scale * divisor / pixels

    def _prepare(self, batch: Batch) -> GradientSync:
        """Warm up until the model compiles and a micro-batch fits into memory, then wrap it for its strategy."""
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        example = empty_batch(batch, self.settings, self.world)
        self.fit, module, part = fit_memory(self.model, self.fit, example, self.settings, self.world, self._warm_up)
        sync = self._gradient_sync(module)
        if isinstance(sync.module, DistributedDataParallel):
            # DDP orders its buckets by its first pass; that must not be another one after a resume.
            self._warm_up(sync.module, part)
        for buffer, value in zip(self.model.buffers(), buffers, strict=True):
            buffer.data.copy_(value)
        return sync

    def _warm_up(self, module: nn.Module, part: Batch) -> None:
        """Forward and backward with as much memory in use as later: optimiser states, and what is sent to others."""
        ballast = [torch.empty_like(w) for w in self.weights * 3] if self.world.device.type == "cuda" else []
        self.optimiser.zero_grad()
        self.forward_backward(module, part, self._scale_of(None, part))
        del ballast

    def _gradient_sync(self, module: nn.Module) -> GradientSync:
        if self.settings.deterministic:
            return DeterministicReduce(module, self.model, self.world, self.settings.shards)
        if self.settings.strategy == "fsdp" or self.world.size == 1:
            return GradientSync(module, self.world)
        return GradientSync(DistributedDataParallel(module), self.world)

    @property
    def ddp(self) -> DistributedDataParallel | None:
        """The model in DDP; None without DDP and before the first step."""
        module = self._sync.module if self._sync else None
        return module if isinstance(module, DistributedDataParallel) else None

    def state(self) -> State:
        """All that a checkpoint holds of this step, by part and name; sharded tensors as this worker has them."""
        moments = self.optimiser.state_dict()["state"]
        flat = {f"{number}.{name}": v for number, values in moments.items() for name, v in values.items()}
        scalars = {"passes": torch.tensor(self.fit.micro_batches)} | (self.scale.state() if self.scale else {})
        parts = {
            "model": dict(self.model.state_dict()),
            "optimiser": {name: torch.as_tensor(value) for name, value in flat.items()},
            "engine": scalars,
        }
        if self.ema:
            scalars["averaged"] = torch.tensor(self.ema.steps)
            parts["ema"] = dict(self.ema.weights)
        return parts

    def load(self, state: State) -> None:
        """Resume from what `state` gave; the optimiser's tensors are named as `12.exp_avg`."""
        current = self.model.state_dict()
        weights = {name: shard_like(v, current[name]) if name in current else v for name, v in state["model"].items()}
        self.model.load_state_dict(weights)
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in state["optimiser"].items():
            number, name = key.split(".", 1)
            weight = self.weights[int(number)]
            moment = shard_like(value, weight) if value.shape == weight.shape else value
            moments.setdefault(int(number), {})[name] = moment
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.fit = replace(self.fit, micro_batches=int(state["engine"]["passes"]))
        if self.scale:
            self.scale.load(state["engine"])
        if self.ema:
            averages = {name: shard_like(value, current[name]) for name, value in state["ema"].items()}
            self.ema.load(averages, int(state["engine"]["averaged"]))

    @contextmanager
    def evaluation(self) -> Iterator[nn.Module]:
        """The model as it predicts, without gradients; each worker may call it any number of times."""
        self.model.eval()
        averaged = self.ema.applied() if self.ema else nullcontext()
        with averaged, gathered_weights(self.model, self.world), torch.no_grad():
            yield self.model
        self.model.train()

    def losses(self, parts: list[Batch]) -> list[float]:
        """The summed loss of each part with the weights as they are; nothing is learned from it."""
        with self.evaluation() as model, self.autocast():
            return [float(self.loss(model(part.images_NCHW), part.labels_NHW)[0]) for part in parts]


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Compute in half precision where it is safe; weights and their updates stay in fp32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, DTYPES[precision])


@dataclass
class LossScale:
    """The loss scale of fp16, as GradScaler of torch.amp has it, alike on all workers.

    It keeps small gradients from vanishing (Micikevicius et al. 2018, arXiv:1710.03740): it is halved when a gradient
    overflows, and that step is skipped; it doubles after 2000 steps without an overflow.
    """

    value: float = 2.0**16
    stable_steps: int = 0

    def overflows(self, grad_norm: float) -> bool:
        """Update the scale by the norm of a gradient; whether the step must be skipped and a smaller scale may help."""
        if not math.isfinite(grad_norm):
            self.value, self.stable_steps = self.value / 2, 0
            return self.value >= 1
        self.stable_steps += 1
        if self.stable_steps == GROWTH_INTERVAL:
            self.value, self.stable_steps = self.value * 2, 0
        return False

    def state(self) -> dict[str, Tensor]:
        """Scale and stable steps as tensors."""
        return {"scale": torch.tensor(self.value, dtype=torch.float64), "calm": torch.tensor(self.stable_steps)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Resume from a state."""
        self.value, self.stable_steps = float(state["scale"]), int(state["calm"])


class EMA:
    """The exponential moving average of a model's weights: after each step, average += (1 - decay) (weights - average).

    In the first n steps the decay is at most (1 + n) / (10 + n), so that the random start is soon forgotten.
    Averages have the type and placement of the weights, each worker its own; integers are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.steps = 0
        self.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights of one more step."""
        self.steps += 1
        share = 1 - min(self.decay, (1 + self.steps) / (10 + self.steps))
        for name, value in self.model.state_dict().items():
            average = self.weights[name]
            if average.is_floating_point():
                average.add_((value - average) * share)
            else:
                average.copy_(value)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the average as its weights inside of the block; also an error restores its own."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, value in self.model.state_dict().items():
            weights = value.clone()
            value.copy_(self.weights[name])
            self.weights[name].copy_(weights)

    def load(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Resume from the averages of a checkpoint after this many steps; raises KeyError where one is missing."""
        self.steps = steps
        for name, average in self.weights.items():
            average.copy_(weights[name])
