#!/usr/bin/env python3
"""Submit a job script of Snakemake as a Job of Kubernetes with what its rule requests, and print its name alone."""

import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

# Of your site. The claim is one that many pods write (ReadWriteMany), mounted at the same place as here.
IMAGE = "registry.example.org/eopipe:0.1.0"
CLAIM, MOUNT = "eopipe", "/project"
# Names in the namespace of your pod; None is the default of the namespace.
SERVICE_ACCOUNT: str | None = None
PULL_SECRET: str | None = None
# User and group of files on the volume: as in this pod. None is the user of the image.
RUN_AS: tuple[int, int] | None = (os.getuid(), os.getgid())
# A user without an entry in the image's passwd has no home.
HOME_IN_CONTAINER = "/tmp"  # noqa: S108
SHARED_MEMORY = "/dev/shm"  # noqa: S108
# Labels of nodes, such as {"pool": "batch"}, and taints that jobs tolerate; in addition, those for jobs with GPUs.
NODES: dict[str, str] = {}
TOLERATIONS: list[dict[str, str]] = []
GPU_NODES: dict[str, str] = {}
GPU_TOLERATIONS: list[dict[str, str]] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]

# status.sh asks for all Jobs that have them.
LABELS = {"app.kubernetes.io/name": "eopipe"}

script = Path(sys.argv[1])
job = json.loads(re.search(r"^# properties = (.*)$", script.read_text(), re.MULTILINE)[1])
requests = {"cpu": str(job["threads"]), "memory": f"{job['resources']['mem_mb']}M"}
if gpus := job["resources"].get("gpu"):
    requests["nvidia.com/gpu"] = str(gpus)
name = f"eopipe-{job.get('rule', 'group')}-{uuid.uuid4().hex[:8]}".lower().replace("_", "-")
container = {
    "name": "eopipe",
    "image": IMAGE,
    "command": ["bash", str(script.resolve())],
    "workingDir": str(Path.cwd()),
    "resources": {"requests": requests, "limits": requests},
    "env": [{"name": "HOME", "value": HOME_IN_CONTAINER}, {"name": "USER", "value": "eopipe"}],
    "volumeMounts": [{"name": "project", "mountPath": MOUNT}, {"name": "memory", "mountPath": SHARED_MEMORY}],
}
# Without a volume /dev/shm has 64 MB, too little for loaders and NCCL. It counts as memory of the job.
memory = {"medium": "Memory", "sizeLimit": f"{job['resources']['mem_mb'] // 2}M"}
pod = {
    "restartPolicy": "Never",
    "containers": [container],
    "volumes": [
        {"name": "project", "persistentVolumeClaim": {"claimName": CLAIM}},
        {"name": "memory", "emptyDir": memory},
    ],
    "nodeSelector": NODES | (GPU_NODES if gpus else {}),
    "tolerations": TOLERATIONS + (GPU_TOLERATIONS if gpus else []),
}
if SERVICE_ACCOUNT:
    pod["serviceAccountName"] = SERVICE_ACCOUNT
if PULL_SECRET:
    pod["imagePullSecrets"] = [{"name": PULL_SECRET}]
if RUN_AS:
    pod["securityContext"] = {"runAsUser": RUN_AS[0], "runAsGroup": RUN_AS[1], "fsGroup": RUN_AS[1]}
# Snakemake tries again, so Kubernetes does not; an hour after its end a Job may go.
spec = {
    "backoffLimit": 0,
    "activeDeadlineSeconds": 60 * job["resources"]["runtime"],
    "ttlSecondsAfterFinished": 3600,
    "template": {"metadata": {"labels": LABELS}, "spec": pod},
}
metadata = {"name": name, "labels": LABELS}
manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
subprocess.run(["kubectl", "create", "-f", "-"], input=json.dumps(manifest), text=True, check=True, stdout=sys.stderr)
print(name)
