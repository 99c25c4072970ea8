"""The shape of a training in words, as a config and a profile give it."""

from typing import Any

from eopipe.clusters.check_profile import geometry_of
from eopipe.launch.environment import Nodes, nodes_of


def shape(train: dict[str, Any], told: dict[str, Any] | None = None) -> str:
    """How the section train of a config will run, alone or with the settings of a profile."""
    given = told or {}
    asked = (given.get("default-resources") or {}) | ((given.get("set-resources") or {}).get("train") or {})
    nodes = nodes_of(train["nodes"])
    if asked and nodes.least <= int(asked.get("nodes", 1)) <= nodes.most:
        nodes = Nodes(*(int(asked.get("nodes", 1)),) * 2)
    count = f"{nodes.least}" if nodes.least == nodes.most else f"{nodes.least} to {nodes.most}"
    each = f"{count} {_many(nodes.most, 'node')} x {train['processes']} {_many(train['processes'], 'process')}"
    way = _way(nodes, slurm=given.get("executor") == "slurm")
    return f"training: {each} ({_gpus(train, asked)}), {_room(train, asked)} a node; {way}"


def _gpus(train: dict[str, Any], asked: dict[str, Any]) -> str:
    if "gres" in asked:
        there = geometry_of(asked).processes
        return "1 GPU each" if there == train["processes"] else f"{there} {_many(there, 'GPU')} a node"
    if asked or train["device"] == "cpu":
        return "no GPU"
    return "1 GPU each" if train["device"] == "cuda" else "1 GPU each where there are any"


def _room(train: dict[str, Any], asked: dict[str, Any]) -> str:
    cpus = asked.get("cpus_per_task", train["processes"] * train["threads"])
    memory = asked.get("mem_mb")
    spoken = f"{memory / 1000:.3g} GB" if isinstance(memory, int) else "as much memory as its input needs"
    return f"{cpus} {_many(cpus, 'CPU')} and {spoken}"


def _way(nodes: Nodes, *, slurm: bool) -> str:
    if nodes.most == 1:
        return "one torchrun agent, without srun; rendezvous on the node itself"
    start = "through srun" if slurm else "each started by the same line (docs/nodes.md)"
    return f"one torchrun agent a node, {start}; rendezvous on the first node"


def _many(count: object, word: str) -> str:
    """The word for so many."""
    return word if count == 1 else word + ("es" if word.endswith("s") else "s")
