"""`make gallery`: run the examples, write docs/gallery.md, its pictures, and the strip on the first page of the site.

    python -m dev.gallery [CACHE] [--only NAME ...] [--render]

Each example is a project in a folder of its own, below CACHE or a temporary folder, that `eopipe run` runs to the end
on two cores. The pages show docs/gallery/results.json, which only the runs write; --render writes the pages from it.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from dev.gallery_runs import (
    CORES,
    EXAMPLES,
    MADE_UP,
    NOT_SHOWN,
    ROOT,
    SHOWN,
    Example,
    finish,
    first_sentence,
    measured,
    model_of,
)
from dev.thumbnail import draw
from eopipe.text_table import format_bytes

DOCS = ROOT / "docs"
PICTURES, PAGE, FRONT = DOCS / "gallery", DOCS / "gallery.md", DOCS / "index.md"
RECORD = PICTURES / "results.json"
INTRODUCTION = """# Gallery

`make gallery` runs each example below by `eopipe run` to the end, and writes this page from the runs: pictures, scores
and times. No run needs a network. The pictures have the colours of the reports.

Scores are of test areas without training chips, with 95 % confidence intervals where the test areas have enough
independent pieces for one. "model minus" is the paired difference: where its interval contains 0, the model cannot be
told apart from that baseline (of an error such as RMSE, the smaller is the better). Times are wall times; other work on
the machine makes them longer, so each example has its CPU time and the load average at the start too. {made_up} have
made-up scenes, by the makers of the tests.

*Pictures of the embedded sample: {credit}.*"""
STRIP = re.compile(r"(<!-- gallery: python -m dev\.gallery -->\n).*?(<!-- end -->)", re.DOTALL)


def run_all(names: Sequence[str], cache: Path) -> None:
    """Run examples below a folder, and write their pictures and records."""
    PICTURES.mkdir(exist_ok=True)
    for name in names:
        folder = finish(name, cache)
        draw(folder, model_of(folder), PICTURES / f"{name}.png")
        records = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
        records[name] = json.loads((folder / "times.json").read_text()) | measured(folder)
        ordered = {example.name: records[example.name] for example in SHOWN if example.name in records}
        RECORD.write_text(json.dumps(ordered, indent=1) + "\n")
        print(f"{name}: {records[name]['wall_s']} s", flush=True)


def page(records: dict[str, Any]) -> str:
    """The text of docs/gallery.md."""
    made_up = " and ".join(f"`{example.name}`" for example in SHOWN if MADE_UP in example.data)
    heads = ("example", "task", "score of the model", "best baseline", f"time on {CORES} cores")
    rows = [_summary(example, records[example.name]) for example in SHOWN]
    unshown = [
        (f"[{name}](../config/examples/{name}.yaml)", first_sentence(EXAMPLES / f"{name}.yaml"), reason)
        for name, reason in NOT_SHOWN.items()
    ]
    credit = yaml.safe_load((ROOT / "config/config.yaml").read_text())["report"]["attribution"]
    parts = [INTRODUCTION.format(made_up=made_up, credit=credit), table(heads, rows)]
    parts += [_card(example, records[example.name]) for example in SHOWN]
    parts += ["## Not shown", table(("example", "what it is for", "why it is not run for this page"), unshown)]
    return "\n\n".join(parts) + "\n"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [f"| {' | '.join(line)} |" for line in (heads, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(heads)}", *lines[1:]])


def _summary(example: Example, record: dict[str, Any]) -> list[str]:
    # Few columns: the page of the site cuts what is wider.
    row = [f"[{example.name}](#{example.name})", f"{record['task']}, {example.sensor}"]
    if not record["measures"]:
        return [*row, "not scored", "", duration(record["wall_s"])]
    main = record["measures"][0]
    values = {method: values for method, measure, *values in record["scores"] if measure == main}
    baselines = {m: v for m, v in values.items() if m != "model" and not m.startswith("model minus")}
    best = (min if record["task"] == "regression" else max)(baselines, key=lambda method: baselines[method][0])
    model, baseline = (f"{main} {score(*values[method])}" for method in ("model", best))
    return [*row, model, f"{baseline}, {best}", duration(record["wall_s"])]


def _card(example: Example, record: dict[str, Any]) -> str:
    spent = f"CPU time {duration(record['cpu_s'])}, load average {record['load']}"
    (inodes, size, cpu_s), (inodes_written, size_written) = record["planned"], record["written"]
    facts = [
        f"Task: {record['task']} of {', '.join(record['classes'])}",
        f"Scenes: {record['scenes']} of {example.sensor}; {example.data}",
        f"Time: {duration(record['wall_s'])} on {CORES} cores ({spent})",
        f"Disk: {inodes_written:,} files and folders, {format_bytes(size_written)}; `eopipe plan` said {inodes:,}, "
        f"{format_bytes(size)} and {duration(cpu_s)} of CPU time",
        f"Source: [{example.source}]({os.path.relpath(example.source, 'docs')})",
    ]
    if record["measures"]:
        facts.insert(1, f"Scored on: {record['tested']}")
    if record["task"] == "multilabel":
        facts.append("Picture: the most probable class of each chip")
    lines = [f"## {example.name}", f"![Map of {example.name}](gallery/{example.name}.png)", example.sentence]
    lines.append("\n".join(f"- {fact}" for fact in facts))
    if record["measures"]:
        cells: dict[str, dict[str, str]] = {}
        for method, measure, *values in record["scores"]:
            cells.setdefault(method, {})[measure] = score(*values)
        rows = [[method, *(of_method.get(m, "") for m in record["measures"])] for method, of_method in cells.items()]
        lines.append(table(["", *record["measures"]], rows))
    return "\n\n".join(lines)


def score(value: float | None, low: float | None, high: float | None) -> str:
    """A score with its interval if any."""
    if value is None:
        return "-"
    return f"{value:.3f}" + (f" ({low:.3f} to {high:.3f})" if low is not None and high is not None else "")


def duration(seconds: float) -> str:
    """Seconds as minutes and seconds."""
    return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"


def strip(front: str) -> str:
    """The first page of the site, with the pictures that link to their examples."""
    links = (
        f'[![{e.name}](gallery/{e.name}.png){{ width="150" style="vertical-align: top" }}](gallery.md#{e.name})'
        for e in SHOWN
    )
    return STRIP.sub(lambda match: match[1] + "\n".join(links) + "\n" + match[2], front)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the examples, and write the pages."""
    parser = argparse.ArgumentParser(prog="python -m dev.gallery", description=(__doc__ or "").partition("\n\n")[0])
    names = [example.name for example in SHOWN]
    possible = [example.name for example in SHOWN if example.catalog is None or example.catalog.is_dir()]
    parser.add_argument("cache", nargs="?", type=Path, help="folder of the projects; those that have ended stay")
    parser.add_argument("--only", nargs="+", choices=names, default=possible, help="examples to run (default: all)")
    parser.add_argument("--render", action="store_true", help="run nothing")
    arguments = parser.parse_args(argv)
    if not arguments.render:
        with tempfile.TemporaryDirectory() as folder:
            run_all(arguments.only, (arguments.cache or Path(folder)).resolve())
    PAGE.write_text(page(json.loads(RECORD.read_text())))
    FRONT.write_text(strip(FRONT.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
