"""Trainings that pause and are continued elsewhere: the same model as one that was not, and no step is repeated."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from patience import PATIENCE
from trainings import Data, Training, payload

from eopipe.checkpoints.manager import CHECKPOINT
from eopipe.cli import main

SHARES = ("0.3", "0.6", None)
CHECKPOINTS = ("--checkpoint-every", "3", "--batch", "32", "--width", "8")
# With ten validations each, in one process; `undisturbed` is of two.
KINDS = {
    "ema": ("--processes", "1", "--steps", "20", "--ema", "0.9"),
    # The weights of the model are older than the second pause.
    "patience": ("--processes", "1", "--steps", "20", "--patience", "9", "--learning-rate", "0.05"),
}


def rung(data: Data, folder: Path, share: str | None, settings: tuple[str, ...], before: Path | None) -> Training:
    """A training to a share of its steps, in a state folder of its own."""
    words: tuple[str, ...] = ("--until", share) if share else ()
    words += ("--continued", str(before)) if before else ()
    return Training(data, folder, (*settings, *words))


def ends(log: str) -> tuple[int, int]:
    """The step that a training starts at, and the last one that it validates; the same where it takes none."""
    first = re.findall(r"event=world size=\d+ step=(\d+)", log)
    validated = re.findall(r"event=validation step=(\d+)", log)
    return int(first[0]), int((validated or first)[-1])


def train_in_rungs(data: Data, root: Path, settings: tuple[str, ...], shares: tuple[str | None, ...] = SHARES) -> Path:
    """The model of the last of several rungs, each of which starts where the one before ended."""
    before, last = None, 0
    for number, share in enumerate(shares):
        training = rung(data, root / str(number), share, settings, before)
        completed = training.run()
        assert completed.returncode == 0, completed.stderr
        first, end = ends(completed.stderr)
        assert first == last <= end
        assert (training.model / CHECKPOINT).exists() == (share is not None)
        assert not training.state.exists()
        before, last = training.model, end
    assert before
    return before


@pytest.mark.exhaustive(by="rungs")
def test_a_training_in_rungs_ends_with_the_bytes_of_an_undisturbed_one(
    data: Data, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    assert payload(train_in_rungs(data, tmp_path, Training(data, tmp_path).settings)) == undisturbed
    names = {path.name for path in (tmp_path / "0/model" / CHECKPOINT).iterdir()}
    (step,) = (name for name in names if name.startswith("step-"))
    assert names == {step, "identity.json", "metrics.jsonl"}
    assert json.loads((tmp_path / "0/model/history.json").read_text())["validations"][-1]["step"] == int(step[5:])
    texts = [path.read_bytes() for path in (tmp_path / "1/model").rglob("*.json*")]
    assert not any(str(tmp_path).encode() in text for text in texts)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_rungs_change_nothing_with(kind: str, data: Data, tmp_path: Path) -> None:
    settings = (*CHECKPOINTS, *KINDS[kind])
    whole = Training(data, tmp_path / "whole", settings)
    assert whole.run().returncode == 0
    assert payload(train_in_rungs(data, tmp_path, settings)) == payload(whole.model)
    checkpoints = len([*(tmp_path / "1/model" / CHECKPOINT).glob("step-*")])
    assert checkpoints == (2 if kind == "patience" else 1)


@pytest.mark.exhaustive
def test_a_training_that_stops_early_in_a_rung_takes_no_step_in_a_later_one(data: Data, tmp_path: Path) -> None:
    settings = (*CHECKPOINTS, "--processes", "1", "--steps", "20", "--patience", "2", "--learning-rate", "0.05")
    whole = Training(data, tmp_path / "whole", settings)
    completed = whole.run()
    assert completed.returncode == 0, completed.stderr
    stopped_at = ends(completed.stderr)[1]
    assert stopped_at < 0.9 * 20
    assert payload(train_in_rungs(data, tmp_path, settings, ("0.9", None))) == payload(whole.model)


@pytest.mark.exhaustive
def test_a_rung_that_is_killed_and_run_again_gives_the_same_and_goes_on(
    data: Data, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    settings = (*Training(data, tmp_path).settings, "--checkpoint-every", "1")
    first = rung(data, tmp_path / "0", "0.3", settings, None)
    assert first.run().returncode == 0
    second = rung(data, tmp_path / "1", "0.6", settings, first.model)
    calm = second.run()
    assert calm.returncode == 0, calm.stderr
    expected, (start, _) = payload(second.model), ends(calm.stderr)
    shutil.rmtree(second.model)
    process = second.start()
    second.wait_for_step(start + 2, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    again = second.run()
    assert again.returncode == 0, again.stderr
    assert ends(again.stderr)[0] >= start + 2
    assert payload(second.model) == expected
    last = rung(data, tmp_path / "2", None, settings, second.model)
    assert last.run().returncode == 0
    assert payload(last.model) == undisturbed


@pytest.mark.exhaustive
def test_only_the_same_training_continues_and_one_that_is_not_promoted_is_copied(
    data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = (*CHECKPOINTS, "--processes", "1", "--steps", "10")
    first = rung(data, tmp_path / "0", "0.3", settings, None)
    completed = first.run()
    assert completed.returncode == 0, completed.stderr
    promoted = tmp_path / "promoted.json"
    promoted.write_text(json.dumps({"promoted": ["another"]}))
    more = ("--promoted", str(promoted))
    # Stopped in one rung, it stays so in each later one.
    ended = rung(data, tmp_path / "1", "0.6", (*settings, *more), first.model)
    later = rung(data, tmp_path / "2", None, (*settings, *more), ended.model)
    for training in (ended, later):
        completed = training.run()
        assert completed.returncode == 0, completed.stderr
        assert "event=world" not in completed.stderr
    files = {name: content for name, content in payload(first.model).items() if not name.startswith(CHECKPOINT)}
    assert payload(ended.model) == payload(later.model)
    assert payload(later.model).keys() == files.keys()
    del files["manifest.json"]
    assert files.items() <= payload(later.model).items()

    promoted.write_text(json.dumps({"promoted": ["model"]}))
    assert main(["train", *rung(data, tmp_path / "4", "0.1", settings, first.model).command()[4:]]) == 2
    assert "pauses after step 1" in capsys.readouterr().err
    narrow = (*settings, "--width", "4")
    refused = {
        "settings.width is 4 here and 8 there": rung(data, tmp_path / "3", None, narrow, first.model),
        "does not have a checkpoint": later,
    }
    for sentence, training in refused.items():
        completed = training.run()
        assert (completed.returncode, sentence in completed.stderr) == (3, True), completed.stderr
