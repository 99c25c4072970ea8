"""`eopipe run` on a cluster: what it cannot give is refused before a job is submitted, and what ended jobs is told."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eopipe.clusters.check_profile import read_profile, with_site
from eopipe.clusters.endings import endings
from eopipe.clusters.find_profile import resolve
from eopipe.clusters.slurm import site
from eopipe.errors import UsageError
from eopipe.run import project

LOGS = Path(".snakemake/log")
# With these nothing is submitted.
HARMLESS = {"-n", "--dry-run", "--dryrun", "--executor", "-e", "--unlock", "--list", "-h", "--help"}


def run(words: list[str]) -> int:
    """Run the pipeline; on Slurm, tell at the end in a sentence each why jobs failed for good."""
    asked = profile_of(words)
    if not asked or HARMLESS & {word.partition("=")[0] for word in words}:
        return project.run(words)
    told = read_profile(resolve(asked).file)
    if told.get("executor") != "slurm":
        return project.run(words)
    refuse(told)
    before = set(LOGS.glob("*.snakemake.log"))
    code = project.run(words)
    if code:
        new = sorted(set(LOGS.glob("*.snakemake.log")) - before)
        for sentence in endings("".join(file.read_text(errors="replace") for file in new)):
            print(f"error: {sentence}", file=sys.stderr)
    return code


def profile_of(words: Sequence[str]) -> str:
    """The profile that the words or the environment name; none where they name none."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name == "--profile":
            return value or following
    return os.environ.get("SNAKEMAKE_PROFILE", "")


def refuse(told: dict[str, Any]) -> None:
    """Raise UsageError with all that this cluster cannot give."""
    if wrong := list(with_site(told, site())):
        raise UsageError(f"{'; '.join(wrong)} (nothing was submitted)")
