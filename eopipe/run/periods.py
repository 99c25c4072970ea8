"""`eopipe run --datetime`: a period that the finished model of a project maps into results of its own.

A period has a config of its own in the project, `config/2026-06.yaml`, which is written at its first run and kept: so
a period that is run again has the same map, whatever the project's config says by then.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

from eopipe.config import check
from eopipe.errors import UsageError
from eopipe.publish import publish
from eopipe.run.locate import NAMES, project_folder
from eopipe.stac.query import ALWAYS, parse_interval
from eopipe.text_files import read_config
from eopipe.text_table import message_line

HEAD = """\
# The period {period} of {config}, written by `eopipe run --datetime {period}` and kept: runs of the period read it.
# Paths are relative to the project folder. Settings of this period alone go here, such as the sample of its map.
"""
# Settings that are about the images or the map of one period, and belong to no other.
OF_ONE_PERIOD = (("search", "ids"), ("evaluate", "sample"))


def config_of_period(config: Path, period: str) -> Path:
    """The config of a period of a project; at its first run it is written, as the project's with other dates.

    Raises UsageError for a config that trains a model, and for a period without an end.
    """
    if {*parse_interval(period)} & {*ALWAYS}:
        raise UsageError(
            f"--datetime {period} has no first or no last day; give both, such as 2026-06 or 2026-06/2026-08"
        )
    values, folder = read_config(config), project_folder(config) / "config"
    # A project may have several configs.
    prefix = "" if config.name in {name.name for name in NAMES} else f"{config.stem}-"
    file = Path(os.path.relpath(folder / f"{prefix}{_name_of(period)}.yaml"))
    if not check(values, str(config))["model"]:
        raise UsageError(
            f"--datetime maps a period with a finished model, and {config} trains one; write a project that maps "
            "with it: eopipe init FOLDER --from results"
        )
    of_period, left_out = _settings_of(values, period)
    if file.is_file():
        if changed := _differing(read_config(file), of_period):
            text = f"{file} is kept and differs from {config} in {', '.join(changed)}; remove it to take these over"
            print(message_line("note", text), file=sys.stderr)
        return file
    import yaml

    file.parent.mkdir(exist_ok=True)
    with publish(file) as draft:
        text = yaml.safe_dump(of_period, sort_keys=False, allow_unicode=True)
        draft.write_text(f"{HEAD.format(period=period, config=config.name)}\n{text}", encoding="utf-8")
    reason = f", without {' and '.join(left_out)}, which belong to other scenes" if left_out else ""
    print(f"wrote {file}: {config.name} with search.datetime {period}{reason}", file=sys.stderr)
    return file


def _name_of(period: str) -> str:
    """A period as the name of a folder."""
    return re.sub(r"[^\w.-]+", "_", period)


def _settings_of(values: dict[str, Any], period: str) -> tuple[dict[str, Any], list[str]]:
    """The settings of a period, unchecked, and the names of those of the project that it does not have."""
    settings = {name: dict(value) if isinstance(value, dict) else value for name, value in values.items()}
    left_out = [f"{name}.{key}" for name, key in OF_ONE_PERIOD if (settings.get(name) or {}).pop(key, None)]
    settings |= {name: f"{values.get(name, name)}/{_name_of(period)}" for name in ("results", "state")}
    return settings | {"search": {**(settings.get("search") or {}), "datetime": period}}, left_out


def _differing(of_kept: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """The names of settings of the project that a config of a period has otherwise; more that it has are its own."""
    pairs = [(name, current[name], of_kept.get(name)) for name in current]
    rows = [
        (f"{name}.{key}", value[key], (of_period if isinstance(of_period, dict) else {}).get(key))
        if isinstance(value, dict)
        else (name, value, of_period)
        for name, value, of_period in pairs
        for key in (value if isinstance(value, dict) else [""])
    ]
    return [name for name, value, of_period in rows if value != of_period]
