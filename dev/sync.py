"""`python -m dev.sync [--check]`: write the derived files of a checkout, or report which are stale.

Config schema, CWL tools and reference page follow from the stages; the files for registries from pyproject.toml.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

from dev.cwl import overrides
from dev.cwl_pipeline import fold, pipeline, training
from dev.cwl_repeated import composites, image_map
from dev.cwl_steps import tools
from dev.cwl_variants import as_text, built
from dev.registries import registered
from eopipe.cli import COMMANDS, PASSED_ON, definitions, groups
from eopipe.contract import STAGES, Argument, Command, Input, Knob, Option, Output, Port, is_path, stage
from eopipe.errors import BY_CODE

DEMO = "config/config.yaml"


def derived(root: Path) -> dict[Path, str]:
    """Every derived file of a checkout with its text."""
    files = {root / "config/schema.json": schema(), root / "docs/stages.md": reference()}
    files[root / "docs/commands.md"] = commands_page()
    files |= {root / f"cwl/{name}": text for name, text in cwl_files().items()} | registered(root)
    if (root / DEMO).is_file():
        files[root / "cwl/pipeline.yml"] = demo_job(root)
    return files


def main(argv: Sequence[str] | None = None) -> int:
    """Write the derived files into the checkout of the working directory; return 1 if --check finds a stale one."""
    parser = argparse.ArgumentParser(prog="python -m dev.sync", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; report stale files")
    check = parser.parse_args(argv).check
    root = Path.cwd()
    stale = {path: text for path, text in derived(root).items() if not path.is_file() or path.read_text() != text}
    for path, text in stale.items():
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        print(f"{'stale' if check else 'wrote'} {path.relative_to(root)}", file=sys.stderr)
    return int(bool(stale) and check)


def schema() -> str:
    """The JSON Schema of the config file, for editors and for the workflow catalogues."""
    from eopipe.config import model

    value = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | model().model_json_schema()
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def cwl_files() -> dict[str, str]:
    """Tools, workflows and overrides by their paths in cwl/, as text."""
    parts = {"fold": fold(), "training": training(), "composites": composites(), "image-map": image_map()}
    documents = {f"{name}.cwl": value for name, value in sorted((tools() | {"pipeline": pipeline()} | parts).items())}
    files = documents | {f"overrides/{name}.yml": value for name, value in overrides().items()}
    return {name: as_text(value) for name, value in files.items()} | built(documents)


def demo_job(root: Path) -> str:
    """The job file of the demo's config, as `eopipe cwl` writes it."""
    from eopipe.config import load
    from eopipe.run.cwl import job, job_text

    with chdir(root):
        return job_text(job(load(Path(DEMO)), Path("cwl"), Path(DEMO)), DEMO)


def reference() -> str:
    """The page that lists every stage and its ports."""
    parts = ["<!-- Derived from eopipe/stages by `make sync`; do not edit. -->", "# Stages", ""]
    parts += [
        "A stage is one typed function: `eopipe STAGE`, its config section, CWL tool and rule all follow from it.",
        "An **option** changes the result, so a change reruns the stage; a **knob** changes only speed or place.",
        "",
    ]
    for name in STAGES:
        parts += _section(stage(name))
    return "\n".join(parts) + "\n"


def commands_page() -> str:
    """The page that lists every command with its arguments, and every exit code with what to do about it."""
    lines = ["<!-- Derived from the signatures in eopipe by `make sync`; do not edit. -->"]
    lines += ["# Commands and exit codes", "", "`eopipe COMMAND --help` shows the arguments of a command.", ""]
    for title, rows in groups().items():
        lines += [f"## {title.capitalize()}", "", "| command | what it does |", "|---|---|"]
        lines += [f"| `eopipe {name}` | {line} |" for name, line in rows.items()] + [""]
    lines += ["## Exit codes", "", "| code | meaning | error |", "|---:|---|---|", "| 0 | It is done. | |"]
    for code, kind in sorted(BY_CODE.items()):
        lines.append(f"| {code} | {kind.__doc__} | `{kind.__name__}` |")
    lines.append("| 70 | A bug in eopipe; the message says so. | |")
    lines.append("| 128 + n | Stopped by signal n, such as 130 by Ctrl-C. | |")
    title = "## Arguments of the commands beside the stages"
    lines += ["", title, "", "[Stages](stages.md) has the arguments of the stages.", ""]
    names = [name for rows in COMMANDS.values() for name in rows if name != PASSED_ON]
    for definition in (row for name in names for row in definitions(name).values()):
        lines += _section(definition)
    return "\n".join(lines[:-1]) + "\n"


def _section(definition: Command) -> list[str]:
    text = (definition.function.__doc__ or "").strip().splitlines()
    lines = [f"## {definition.name}", "", *(line.strip() for line in text), ""]
    lines += ["| port | kind | type | default | meaning |", "|---|---|---|---|---|"]
    for port in definition.ports:
        cells = (f"`{port.flag}`", _kind(port), _type(port), _default(port), port.mark.doc)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def _kind(port: Port) -> str:
    names = {Input: "input", Output: "output", Option: "option", Knob: "knob", Argument: "argument"}
    return names[type(port.mark)] + (" (config)" if isinstance(port.mark, Input) and port.mark.user else "")


def _type(port: Port) -> str:
    if isinstance(port.mark, Argument) and port.mark.stage:
        return f"arguments of `eopipe {port.mark.stage}`"
    if isinstance(port.mark, Argument) and is_path(port):
        kind = "path"
    elif is_path(port):
        folder = getattr(port.mark, "folder", True)
        kind = "folder" if folder else "file"
    else:
        kind = " or ".join(port.choices) or port.base.__name__
    return f"{kind}s" if port.is_list and is_path(port) else f"list of {kind}" if port.is_list else kind


def _default(port: Port) -> str:
    if isinstance(port.mark, Output) and not port.optional:
        return f"`{port.mark.name}`"
    if port.required:
        return "required"
    if port.default in (None, ()):
        return ""
    return "`" + (" ".join(map(str, port.default)) if port.is_list else str(port.default)) + "`"


if __name__ == "__main__":
    sys.exit(main())
