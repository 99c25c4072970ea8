#!/usr/bin/env python3
"""Submit a job script of Snakemake to LSF with what its rule reckons, and print the job's number alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

# Of your site: queue, project.
SITE: list[str] = []

script = sys.argv[1]
job = json.loads(re.search(r"^# properties = (.*)$", Path(script).read_text(), re.MULTILINE)[1])
asked, threads = job["resources"], job["threads"]
line = ["bsub", *SITE, "-J", job.get("rule", "group"), "-o", ".snakemake/lsf-%J.log", "-n", str(threads)]
line += ["-R", "span[hosts=1]", "-W", str(asked["runtime"])]
# MB for the whole job; at sites that count for each slot (LSB_JOB_MEMLIMIT, PER_SLOT) divide by the threads.
line += ["-M", f"{asked['mem_mb']}MB", "-R", f"rusage[mem={asked['mem_mb']}MB]"]
told = subprocess.run([*line, script], check=True, capture_output=True, text=True).stdout
print(re.search(r"Job <(\d+)>", told)[1])
