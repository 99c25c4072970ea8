"""Runs of small projects that are disturbed at random, by a seed, until the same command ends with 0."""

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loopback import Loopback

from chaos.processes import Process, Tag
from chaos.workflows import PROJECTS, Workflow

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
# A killed parent takes everything with it; one that is asked to stop lets a training save its state.
# The bound is for a process that lives on, not for speed.
DEAD_WITHIN_S = 60
STARTS, TIMEOUT_S = 12, 400


@dataclass
class Outcome:
    """What happened to a disturbed run."""

    project: str
    seed: int
    disturbances: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    # Names of payload files that differ from those of the undisturbed run, or are missing in one of them.
    different: list[str] = field(default_factory=list)
    survivors: list[str] = field(default_factory=list)
    drafts: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_identical(self) -> bool:
        """Whether the run ended as if nothing had happened, and no process outlived its parent."""
        return not (self.codes[-1] or self.different or self.survivors or self.drafts)


@dataclass(frozen=True)
class Reference:
    """What an undisturbed run leaves, and how long it takes."""

    digests: dict[str, str]
    seconds: float


def undisturbed(project: str, folder: Path, web: Loopback) -> Reference:
    """Run a project of PROJECTS without a disturbance."""
    workflow, tag, begin = PROJECTS[project](folder, web), Tag(), time.monotonic()
    process = workflow.start(tag, folder / "log")
    assert process.wait(TIMEOUT_S) == 0, (folder / "log").read_text()
    digests = workflow.digests()
    assert digests, "nothing to compare"
    return Reference(digests, time.monotonic() - begin)


def disturbed(project: str, seed: int, folder: Path, web: Loopback, reference: Reference) -> Outcome:
    """Disturb a run one to three times, starting the same command again until it ends with 0."""
    workflow, tag, dice = PROJECTS[project](folder, web), Tag(), random.Random(f"{project} {seed}")
    outcome, begin = Outcome(project, seed), time.monotonic()
    planned = dice.randint(1, 3)
    try:
        for _ in range(STARTS):
            process = workflow.start(tag, folder / "log")
            if len(outcome.disturbances) < planned:
                _disturb(workflow, process, tag, dice, outcome, reference.seconds)
            outcome.codes.append(_await(process, tag, outcome))
            if outcome.codes[-1] == 0:
                break
            if seed % 4 == 0:
                # As when a scratch folder is purged.
                shutil.rmtree(folder / ".snakemake", ignore_errors=True)
    finally:
        tag.end()
    digests = workflow.digests()
    outcome.different = sorted(name for name, _ in digests.items() ^ reference.digests.items())
    outcome.drafts = sorted({path.name for path in folder.rglob(".*.tmp-*")}) if workflow.engine == "snakemake" else []
    outcome.seconds = time.monotonic() - begin
    return outcome


def _disturb(
    workflow: Workflow,
    process: "subprocess.Popen[bytes]",
    tag: Tag,
    dice: random.Random,
    outcome: Outcome,
    seconds: float,
) -> None:
    """Wait for a random moment and send a random signal to a random victim; nothing if the run has ended by then."""
    kind, number = dice.choice(workflow.victims), dice.choice(SIGNALS)
    # A run on an idle machine may end earlier than the undisturbed one; what is resumed begins later in the workflow.
    moment = time.monotonic() + dice.uniform(0.5, 0.6 * seconds)
    while kind != "import" and time.monotonic() < moment and process.poll() is None:
        time.sleep(0.05)
    later = dice.uniform(0, 3)
    if kind in ("worker", "import"):
        _await_kind(kind, process, tag, seconds)
        time.sleep(later)
    if process.poll() is not None:
        return
    alive = tag.alive()
    victims = alive if kind == "group" else [dice.choice(some)] if (some := _of_kind(kind, alive)) else []
    for victim in victims:
        victim.send(number)
    names = sorted({victim.kind for victim in victims})
    outcome.disturbances.append(f"{signal.Signals(number).name} to {kind} ({', '.join(names) or 'none alive'})")
    if number == signal.SIGKILL and kind in ("group", "run", "snakemake", "cwltool") and victims:
        _note(tag.await_end(DEAD_WITHIN_S), outcome)


def _of_kind(kind: str, alive: Sequence[Process]) -> list[Process]:
    return sorted((process for process in alive if process.kind == kind), key=lambda process: process.pid)


def _await_kind(kind: str, process: "subprocess.Popen[bytes]", tag: Tag, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline and not _of_kind(kind, tag.alive()):
        time.sleep(0.1)


def _await(process: "subprocess.Popen[bytes]", tag: Tag, outcome: Outcome) -> int:
    """The exit code of a start; what lives on beside it, or after the time limit, is noted and killed."""
    try:
        code = process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        outcome.survivors.append(f"no end within {TIMEOUT_S} s")
        code = -1
    _note(tag.await_end(DEAD_WITHIN_S), outcome)
    tag.end()
    process.wait()
    return code


def _note(alive: Sequence[Process], outcome: Outcome) -> None:
    outcome.survivors += [f"{process.kind}: {process.command}" for process in alive]
