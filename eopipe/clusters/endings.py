"""Why jobs of a cluster failed for good, from what Snakemake wrote: a sentence each, with what to do."""

import re
from collections.abc import Iterator

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
