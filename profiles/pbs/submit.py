#!/usr/bin/env python3
"""Submit a job script of Snakemake to PBS with what its rule requests, and print the job's number alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

# Of your site: queue, project, such as ["-q", "workq", "-A", "geo"].
SITE: list[str] = []

script = sys.argv[1]
job = json.loads(re.search(r"^# properties = (.*)$", Path(script).read_text(), re.MULTILINE)[1])
resources, threads = job["resources"], job["threads"]
# For Torque: nodes=1:ppn={threads}:gpus={gpus},mem={resources["mem_mb"]}mb
request = f"select=1:ncpus={threads}:mem={resources['mem_mb']}mb"
if gpus := resources.get("gpu"):
    request += f":ngpus={gpus}"
line = ["qsub", *SITE, "-V", "-j", "oe", "-o", ".snakemake", "-N", job.get("rule", "group")]
line += ["-l", request, "-l", f"walltime={resources['runtime']}:00"]
print(subprocess.run([*line, script], check=True, capture_output=True, text=True).stdout.strip())
