"""A profile with formulas that were learned from a run, as text that explains itself."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eopipe.clusters.check_profile import read_profile
from eopipe.clusters.usage_formulas import INPUT_MB, MEMORY, MEMORY_MORE_MB, TIME, TIME_MORE_MINUTES, Proposal

# From its name to the next setting that begins a line.
SECTION = re.compile(r"^set-resources:.*\n(?:[ \t].*\n|\n)*", re.MULTILINE)


def explained(accounts: str) -> list[str]:
    """What the formulas mean, as comments."""
    return [
        f"# Learned from a run ({accounts}).",
        f"# mem_mb: {MEMORY} x what was used + {MEMORY_MORE_MB} for Snakemake in the job;",
        f"# runtime: {TIME:g} x what was used + {TIME_MORE_MINUTES} minutes; both grow with each attempt.",
        f"# {INPUT_MB} is the input in MB.",
    ]


def section(before: dict[str, dict[str, Any]], proposals: Iterable[Proposal]) -> list[str]:
    """`set-resources` with what it had before and the formulas, which replace what they are named alike."""
    by_rule = {proposal.rule: proposal for proposal in proposals}
    lines = ["set-resources:"]
    for rule in [*before, *(rule for rule in by_rule if rule not in before)]:
        lines.append(f"  {rule}:")
        told = dict(before.get(rule) or {})
        if rule in by_rule:
            lines.append(f"    # {by_rule[rule].why}")
            told |= {name: str(formula) for name, formula in by_rule[rule].formulas.items()}
        lines += [f"    {name}: {_plain(value)}" for name, value in told.items()]
    return lines


def tuned(profile: Path, proposals: Iterable[Proposal], accounts: str) -> str:
    """A profile as it stands, comments too, with the formulas in its `set-resources`."""
    import yaml

    told, text = read_profile(profile), profile.read_text()
    lines = section(told.get("set-resources") or {}, proposals)
    wanted = told | yaml.safe_load("\n".join(lines))
    kept = SECTION.sub("", text if text.endswith("\n") else f"{text}\n").rstrip("\n")
    made = "\n".join([kept, *explained(accounts), *lines, ""])
    try:
        if yaml.safe_load(made) == wanted:
            return made
    except yaml.YAMLError:
        pass
    # YAML that is written in another way keeps what it says, without its comments.
    return yaml.safe_dump(wanted, sort_keys=False)


def _plain(value: Any) -> str:
    """A value as YAML: numbers and simple words bare, the rest as JSON has it."""
    simple = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w:./-]*[\w]", value)
    return str(value) if simple else json.dumps(value)
