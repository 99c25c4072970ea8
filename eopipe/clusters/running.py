"""`eopipe run` on a cluster: what it cannot give is refused before a job is submitted, and what ended jobs is told."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eopipe.clusters.check_profile import read_profile, with_site
from eopipe.clusters.find_profile import find_profile
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
    told = read_profile(find_profile(asked).file)
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


AGAIN = "run the same command again to go on from what is saved"
STATES = {
    "TIMEOUT": f"ran over its time limit each time; {AGAIN}, or give it more (runtime)",
    "OUT_OF_MEMORY": "needs more memory; raise its mem_mb in set-resources of the profile",
    "NODE_FAIL": f"lost its node; {AGAIN}",
    "BOOT_FAIL": f"lost its node; {AGAIN}",
    "CANCELLED": f"was cancelled; {AGAIN}",
    "PREEMPTED": f"was pre-empted; {AGAIN}",
    "DEADLINE": f"could not end before its deadline; {AGAIN}",
}
# What sbatch says, and the remedy; the first that fits.
REFUSALS = {
    r"contact slurm controller|timed out|Connection refused": f"when it answers (`sinfo`), {AGAIN}",
    r"partition": "set slurm_partition to one that `sinfo` shows",
    r"account|association": "set slurm_account to one that you may charge (`sacctmgr show assoc user=$USER`)",
    r"[Mm]emory|configuration|processors|CPU|node count": "ask for less in set-resources of the profile",
    r"gres|GRES": "set gres to one that `sinfo -o %G` shows",
    r"time limit": "lower its runtime in set-resources of the profile",
}
# Logs of jobs stand in between, with failures of their own Snakemake, which have no message.
FAILED = re.compile(
    r"^Error in (?:rule|checkpoint) (\w+):\n    message: (?!None\n)(.*?)\n    jobid: (\d+)", re.M | re.S
)


def endings(log: str) -> Iterator[str]:
    """A sentence for each job of Snakemake that failed and did not succeed later."""
    done = set(re.findall(r"^Finished jobid: (\d+)", log, re.MULTILINE))
    last = {found[3]: found for found in FAILED.finditer(log) if found[3] not in done}
    starts = sorted(found.start() for found in FAILED.finditer(log))
    for found in last.values():
        following = next((start for start in starts if start > found.start()), len(log))
        yield f"rule {found[1]}: {_ending(found[2], log[found.start() : following])}"


def _ending(message: str, block: str) -> str:
    if refused := re.search(r"sbatch failed\. The error message was '(.*?)'\.\n", message, re.DOTALL):
        return _refused(refused[1])
    ended = re.search(r"job '(\w+)' failed.*?status is: '(\w+)'", message, re.DOTALL)
    if ended and ended[2] in STATES:
        return f"its job {ended[1]} {STATES[ended[2]]}"
    # The first one is the cause; what others say follows from it.
    if said := re.search(r"^error: (.*)$", block, re.MULTILINE):
        return said[1]
    return f"{' '.join(message.split())}; the log above says more"


def _refused(said: str) -> str:
    lines = [line.removeprefix("sbatch: error: ").strip() for line in said.splitlines() if line.strip()]
    words = lines[-1].removeprefix("Batch job submission failed: ") if lines else "it does not say why"
    known = (remedy for pattern, remedy in REFUSALS.items() if re.search(pattern, said))
    remedy = next(known, "ask the people of your cluster")
    return f"Slurm does not take its job: {words}; {remedy}"
