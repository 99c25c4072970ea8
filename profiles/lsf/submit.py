#!/usr/bin/env python3
"""Submit a job script of Snakemake to LSF with what its rule requests, and print the job's number alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

# Of your site: queue, project.
SITE: list[str] = []

script = sys.argv[1]
job = json.loads(re.search(r"^# properties = (.*)$", Path(script).read_text(), re.MULTILINE)[1])
resources, threads = job["resources"], job["threads"]
line = ["bsub", *SITE, "-J", job.get("rule", "group"), "-o", ".snakemake/lsf-%J.log", "-n", str(threads)]
line += ["-R", "span[hosts=1]", "-W", str(resources["runtime"])]
# MB for the whole job; at sites that count for each slot (LSB_JOB_MEMLIMIT, PER_SLOT) divide by the threads.
line += ["-M", f"{resources['mem_mb']}MB", "-R", f"rusage[mem={resources['mem_mb']}MB]"]
if gpus := resources.get("gpu"):
    line += ["-gpu", f"num={gpus}"]
output = subprocess.run([*line, script], check=True, capture_output=True, text=True).stdout
print(re.search(r"Job <(\d+)>", output)[1])
