"""The arithmetic of the scaling report."""

import importlib.util
import sys
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "benchmarks/scaling.py"
spec = importlib.util.spec_from_file_location("scaling", SOURCE)
assert spec
assert spec.loader
scaling = importlib.util.module_from_spec(spec)
# A dataclass looks its module up.
sys.modules["scaling"] = scaling
spec.loader.exec_module(scaling)


def test_only_time_between_validations_counts_and_the_first_interval_warms_up() -> None:
    slow = [(step, step * 1.0) for step in (1, 2, 3)]
    fast = [(step, 100 + step * 0.5) for step in (4, 5, 6)] + [(step, 200 + step * 0.5) for step in (7, 8, 9)]
    assert scaling.pace(slow + fast, 3) == pytest.approx(2.0)
    assert scaling.pace(slow, 3) == pytest.approx(1.0)
    with pytest.raises(SystemExit, match="validated one by one cannot be timed"):
        scaling.pace([(1, 1.0), (2, 2.0)], 1)


def test_speed_up_is_beside_the_fewest_processes_and_efficiency_beside_their_number() -> None:
    runs = [scaling.Measured(1, 100.0, 1000, 10.0, 50.0), scaling.Measured(2, 150.0, 1000, 8.0, None)]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in scaling.table(runs, 3.6).splitlines()]
    assert rows[2] == ["1", "100.0", "1.00", "100%", "10.00", "0.05", "10.00"]
    assert rows[3] == ["2", "150.0", "1.50", "75%", "13.33", "not measured", "6.67"]


def test_a_counter_of_energy_may_begin_anew() -> None:
    assert scaling.passed_since((100, 1000), 150, 1000) == 50
    assert scaling.passed_since((900, 1000), 50, 1000) == 150


def test_energy_is_not_told_where_no_hardware_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "POWERCAP", tmp_path)
    monkeypatch.setattr(scaling, "POWER", ("there-is-no-such-program",))
    meter = scaling.Meter()
    with meter.on():
        pass
    assert meter.joules is None
    assert scaling.watts("[N/A]") == 0.0
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    (zone / "max_energy_range_uj").write_text("5000000\n")
    (zone / "energy_uj").write_text("4000000\n")
    with meter.on():
        (zone / "energy_uj").write_text("1000000\n")
    assert meter.joules == 2.0


def test_energy_of_all_gpus_is_their_power_times_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "nvidia-smi"
    script.write_text("#!/bin/sh\nprintf '100.5\\n[N/A]\\n199.5\\n'\n")
    script.chmod(0o755)
    monkeypatch.setattr(scaling, "POWERCAP", tmp_path)
    monkeypatch.setattr(scaling, "POWER", (str(script),))
    meter, began = scaling.Meter(), time.monotonic()
    with meter.on():
        while meter.gpus is None and time.monotonic() < began + 30:
            time.sleep(0.05)
    # One look, a second or more after the start, or a second one when it ends.
    assert 300 <= meter.joules <= 300 * (time.monotonic() - began)
