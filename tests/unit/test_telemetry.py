"""Telemetry of a training: journal, phases, progress, profiler and previews."""

import json
import logging
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from eopipe.telemetry.journal import Journal, missing_steps, published_lines, read_journal, rounded
from eopipe.telemetry.progress import (
    Interval,
    ProgressBar,
    ProgressLog,
    ProgressReport,
    ThroughputMeter,
    format_duration,
    peak_memory,
    progress_display,
)
from eopipe.telemetry.timing import PhaseTimer, Profiler, busy_share, phase, time_table, timed
from eopipe.training.monitor import (
    COLORS,
    NO_LABEL_GREY,
    class_colors,
    exposed_communication_s,
    preview_png,
    true_color,
)

NOW = ProgressReport(step=7, steps=20, loss=0.5, samples_s=123.4, data_wait=0.015, memory=2_000_000, left=3725.0)


def run(folder: Path, begin: int, end: int) -> None:
    """Write the steps after `begin` up to `end`, a validation at every second one, and a checkpoint at each."""
    journal = Journal(folder, begin)
    if begin:
        journal.add("resume", begin)
    for step in range(begin + 1, end + 1):
        journal.add("step", step, loss=1 / step, learning_rate=0.1, gradient_norm=float(step))
        if step % 2 == 0:
            journal.add("validation", step, val={"miou": step / 10})
        journal.add("checkpoint", step)
    journal.close()


@settings(max_examples=25, deadline=None)
@given(killed=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 200)), max_size=3))
def test_however_often_it_is_killed_the_payload_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, killed: list[tuple[int, int]]
) -> None:
    folder, whole = tmp_path_factory.mktemp("killed"), tmp_path_factory.mktemp("whole")
    run(whole, 0, 12)
    safe = 0
    for reached, lost in killed:
        run(folder, safe, max(reached, safe))
        # The checkpoint that the next run restores was written before what was lost.
        lines = (folder / "metrics.jsonl").read_bytes()
        cut = lines[: len(lines) - lost]
        events = [json.loads(line) for line in cut.split(b"\n")[:-1]]
        safe = max((event["step"] for event in events if event["event"] == "checkpoint"), default=0)
        (folder / "metrics.jsonl").write_bytes(cut)
    run(folder, safe, 12)
    assert published_lines(folder / "metrics.jsonl") == published_lines(whole / "metrics.jsonl")
    assert missing_steps(read_journal(folder / "metrics.jsonl"), 12) == []


def test_the_journal_says_when_and_what_happened_and_the_payload_does_not(tmp_path: Path) -> None:
    run(tmp_path, 0, 3)
    run(tmp_path, 2, 4)
    events = read_journal(tmp_path / "metrics.jsonl")
    assert [event["step"] for event in events if event["event"] == "resume"] == [2]
    assert all(abs(event["time"] - time.time()) < 60 for event in events)
    lines = published_lines(tmp_path / "metrics.jsonl")
    assert b"time" not in lines
    assert b"resume" not in lines
    assert b"checkpoint" not in lines


def test_a_step_with_two_lines_or_none_is_missing() -> None:
    events = [{"event": "step", "step": step} for step in (1, 2, 2, 4)]
    assert missing_steps([*events, {"event": "validation", "step": 3}], 4) == [2, 3]


def test_a_lost_journal_is_logged_and_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, 0, 4)
    assert not caplog.records
    (tmp_path / "metrics.jsonl").unlink()
    run(tmp_path, 4, 6)
    assert [r.message for r in caplog.records] == ["event=metrics_lost steps=4 first=1 in=metrics.jsonl"]


def test_numbers_that_are_not_finite_are_null_in_json(tmp_path: Path) -> None:
    assert rounded({"a": float("nan"), "b": [1], "c": 1 / 3}) == {"a": None, "b": [1], "c": 0.333333333}
    journal = Journal(tmp_path, 0)
    journal.add("step", 1, gradient_norm=float("inf"))
    journal.close()
    assert read_journal(tmp_path / "metrics.jsonl")[0]["gradient_norm"] is None


@pytest.fixture
def ticking() -> Iterator[PhaseTimer]:
    timer = PhaseTimer()
    timer.start()
    yield timer
    timer.stop()


def test_each_second_counts_for_the_innermost_phase_and_once(ticking: PhaseTimer) -> None:
    began = time.perf_counter()
    with phase("validation"):
        time.sleep(0.02)
        with phase("data"):
            time.sleep(0.04)
    seconds = ticking.lap()
    assert seconds["data"] >= 0.04
    assert 0.02 <= seconds["validation"] < seconds["data"] + 0.02
    assert sum(seconds.values()) <= time.perf_counter() - began + 0.01
    assert ticking.lap().get("data", 0.0) == 0.0
    assert ticking.total["data"] == seconds["data"]


def test_an_error_in_a_phase_closes_it(ticking: PhaseTimer) -> None:
    with pytest.raises(ValueError, match="no"), phase("data"):
        raise ValueError("no")
    with phase("forward"):
        time.sleep(0.01)
    assert ticking.lap()["forward"] >= 0.01


def test_another_thread_and_a_process_without_a_timer_count_nothing(ticking: PhaseTimer) -> None:
    def work() -> None:
        with phase("checkpoint"):
            time.sleep(0.01)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert "checkpoint" not in ticking.lap()
    ticking.stop()
    work()
    assert "checkpoint" not in ticking.lap()


def test_timed_yields_all_values_and_counts_only_the_wait(ticking: PhaseTimer) -> None:
    def slow() -> Iterator[int]:
        for number in range(3):
            time.sleep(0.01)
            yield number

    numbers = []
    for number in timed(slow()):
        time.sleep(0.02)
        numbers.append(number)
    seconds = ticking.lap()
    assert numbers == [0, 1, 2]
    assert seconds["data"] >= 0.03
    assert seconds["other"] >= 0.06


def test_seconds_move_between_phases_and_never_below_zero() -> None:
    counted = PhaseTimer(seconds={"backward": 2.0})
    counted.reassign("backward", "communication", 0.5)
    counted.reassign("backward", "communication", 9.0)
    counted.reassign("backward", "communication", -1.0)
    assert (counted.seconds["backward"], counted.seconds["communication"]) == (0.0, 2.0)


def test_the_table_adds_up() -> None:
    rows = [row.split() for row in time_table({"data": 1.0, "forward": 2.5, "other": 0.5}).splitlines()]
    assert [row[0] for row in rows] == ["data", "forward", "other", "all"]
    assert [row[1] for row in rows] == ["1.00", "2.50", "0.50", "4.00"]
    assert rows[0][3] == "25.0%"


def test_a_phase_costs_microseconds(ticking: PhaseTimer) -> None:
    began = time.perf_counter()
    for _ in range(1000):
        with phase("data"):
            pass
    assert (time.perf_counter() - began) / 1000 < 200e-6


def test_a_report_is_about_the_time_since_the_last_one() -> None:
    meter = ThroughputMeter(10)
    time.sleep(0.05)
    report = meter.report(20, 120, 0.5, batch=8, data_s=0.01, memory=5)
    assert 8 * 10 / report.samples_s >= 0.05
    assert report.left == pytest.approx(100 / (report.samples_s / 8))
    assert report.data_wait == pytest.approx(0.01 / (80 / report.samples_s), rel=1e-6)
    assert meter.report(20, 120, 0.5, 8, 0.01, 5).data_wait == 0.0


def test_a_line_in_the_log_has_all_figures_and_a_readable_duration() -> None:
    assert NOW.line() == (
        "event=progress step=7 of=20 loss=0.5 samples_s=123.4 data_wait=1.5% memory_mb=2 left=1:02:05"
    )
    assert format_duration(59.6) == "0:01:00"
    assert peak_memory("cpu") > 10_000_000


def test_progress_is_logged_at_intervals_only() -> None:
    every = Interval(0.03)
    assert not every.due()
    time.sleep(0.04)
    assert every.due()
    assert not every.due()
    # Not a terminal here.
    assert isinstance(progress_display(5.0), ProgressLog)


def test_log_lines_appear_above_the_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("eopipe")
    bar = ProgressBar()
    bar.show(NOW)
    try:
        log.warning("event=word size=%d", 3)
    finally:
        bar.close()
    assert "event=word size=3\n" in capsys.readouterr().err
    assert not log.filters


def test_on_a_terminal_the_progress_bar_is_redrawn_in_its_line(tmp_path: Path) -> None:
    code = (
        "import logging, sys; logging.basicConfig(format='%(message)s'); log = logging.getLogger('eopipe')\n"
        "from eopipe.telemetry.progress import ProgressReport, progress_display\n"
        "live = progress_display(30.0)\n"
        "live.show(ProgressReport(1, 9, 0.5, 120.0, 0.01, 10**9, 60.0)); log.warning('event=word')\n"
        "live.show(ProgressReport(2, 9, 0.4, 125.0, 0.01, 10**9, 50.0)); live.close()\n"
    )
    terminal, child_end = pty.openpty()
    output = b""
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=child_end, env=os.environ | {"COLUMNS": "120"}
    ) as process:
        os.close(child_end)
        # Linux says EIO when the other end is closed.
        with suppress(OSError):
            while part := os.read(terminal, 4096):
                output += part
        assert process.wait() == 0
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.decode())
    assert "step 1/9" in text
    assert "loss 0.4000 · 125 samples/s · data wait 1.0% · 1.00 GB · 0:00:50 left" in text
    assert text.splitlines().count("event=word") == 1


def test_communication_that_ddp_does_not_overlap_with_the_backward_pass_is_a_phase() -> None:
    class Ddp:
        def _get_ddp_logging_data(self) -> dict[str, int]:
            return {"avg_backward_comm_time": 30_000_000, "avg_backward_compute_comm_overlap_time": 10_000_000}

    assert exposed_communication_s(Ddp()) == pytest.approx(0.02)
    assert exposed_communication_s(None) == 0.0


@pytest.mark.parametrize(
    ("intervals", "share"),
    [([(0, 10)], 1.0), ([(0, 5), (7, 10), (1, 4)], 0.8), ([(0, 6), (4, 8)], 1.0), ([(0, 1), (9, 10)], 0.2)],
)
def test_the_gpu_is_busy_while_any_kernel_runs(intervals: list[tuple[float, float]], share: float) -> None:
    assert busy_share(intervals) == pytest.approx(share)


def test_the_profiler_writes_a_trace_of_a_few_steps_even_of_a_short_training(tmp_path: Path) -> None:
    import torch

    for name, steps in (("long", 9), ("short", 3), ("none", 1)):
        profiler = Profiler(tmp_path / name, "cpu")
        for _ in range(steps):
            torch.ones(8).cos()
            profiler.step()
        profiler.close()
    counts = {}
    for name in ("long", "short"):
        events = json.loads((tmp_path / name / "trace.json").read_text())["traceEvents"]
        counts[name] = sum(event.get("name") == "aten::cos" for event in events)
        assert "aten::cos" in (tmp_path / name / "operators.txt").read_text()
    assert counts == {"long": 3, "short": 1}
    assert not (tmp_path / "none").exists()


def drawn() -> bytes:
    images = np.linspace(0, 1, 2 * 4 * 8 * 8, dtype=np.float32).reshape(2, 4, 8, 8)
    labels = np.zeros((2, 8, 8), np.int64)
    labels[0, 0, 0] = 255
    return preview_png(images, labels, labels % 255, ("blue", "green", "red", "nir"), 255)


def test_a_preview_has_chip_label_and_prediction_side_by_side_and_the_same_bytes() -> None:
    picture = np.asarray(Image.open(BytesIO(drawn())))
    assert picture.shape == (2 * 10, 3 * 10, 3)
    assert tuple(picture[2, 12]) == (NO_LABEL_GREY,) * 3
    assert "#{:02x}{:02x}{:02x}".format(*picture[3, 13]) == COLORS[0]
    assert drawn() == drawn()


def test_a_chip_is_drawn_in_true_colour_or_in_grey() -> None:
    image = np.stack([np.full((4, 4), value, np.float32) for value in (0.1, 0.5, 0.9)])
    assert true_color(image, ("blue", "green", "red"))[0, 0].tolist() == [255, 127, 0]
    assert len(set(true_color(image, ("vv", "vh", "dem"))[0, 0].tolist())) == 1


def test_more_classes_than_colours_repeat_the_colours() -> None:
    classes = np.arange(len(COLORS) + 1).reshape(1, -1)
    painted = class_colors(classes, 255)
    assert painted[0, 0].tolist() == painted[0, -1].tolist()
    assert len({tuple(color) for color in painted[0].tolist()}) == len(COLORS)
