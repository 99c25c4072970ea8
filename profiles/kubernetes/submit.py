#!/usr/bin/env python3
"""Submit a job script of Snakemake as a Job of Kubernetes with what its rule requests, and print its name alone."""

import json
import re
import subprocess
import sys
import uuid
from pathlib import Path

# Of your site. The claim is one that many pods write (ReadWriteMany), mounted at the same place as here.
IMAGE = "registry.example.org/eopipe:0.1.0"
CLAIM, MOUNT = "eopipe", "/project"

script = Path(sys.argv[1])
job = json.loads(re.search(r"^# properties = (.*)$", script.read_text(), re.MULTILINE)[1])
requests = {"cpu": str(job["threads"]), "memory": f"{job['resources']['mem_mb']}M"}
if "gpu" in job["resources"]:
    requests["nvidia.com/gpu"] = str(job["resources"]["gpu"])
name = f"eopipe-{job.get('rule', 'group')}-{uuid.uuid4().hex[:8]}".lower().replace("_", "-")
container = {
    "name": "eopipe",
    "image": IMAGE,
    "command": ["bash", str(script.resolve())],
    "workingDir": str(Path.cwd()),
    "resources": {"requests": requests, "limits": requests},
    "volumeMounts": [{"name": "project", "mountPath": MOUNT}],
}
pod = {
    "restartPolicy": "Never",
    "containers": [container],
    "volumes": [{"name": "project", "persistentVolumeClaim": {"claimName": CLAIM}}],
}
# Snakemake tries again, so Kubernetes does not; an hour after its end a Job may go.
spec = {
    "backoffLimit": 0,
    "activeDeadlineSeconds": 60 * job["resources"]["runtime"],
    "ttlSecondsAfterFinished": 3600,
    "template": {"spec": pod},
}
manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
subprocess.run(["kubectl", "create", "-f", "-"], input=json.dumps(manifest), text=True, check=True, stdout=sys.stderr)
print(name)
