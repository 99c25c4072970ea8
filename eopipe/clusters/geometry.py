"""The shape of a training on a cluster, from four numbers, and what Slurm must be asked for it."""

from dataclasses import dataclass

from eopipe.clusters.slurm import Partition


@dataclass(frozen=True)
class Geometry:
    """Nodes, and for each of them: processes, CPUs, memory in MB and GPUs (one a process, or none)."""

    nodes: int = 1
    processes: int = 1
    cpus: int = 1
    memory_mb: int | None = None
    gpu: str | None = None

    def resources(self) -> dict[str, int | str]:
        """Resources of the rule `train` for Snakemake's Slurm executor.

        On many nodes the job's own Snakemake must not stand in a step of one node, which `mpi` says; one torchrun
        agent a node makes one task a node. `tasks_per_gpu: 0` keeps the executor from asking for tasks by GPU,
        which no count of nodes could meet.
        """
        told: dict[str, int | str] = {"cpus_per_task": self.cpus}
        if self.memory_mb:
            told["mem_mb"] = self.memory_mb
        if self.nodes > 1:
            told |= {"nodes": self.nodes, "tasks": self.nodes, "mpi": "srun"}
        if self.gpu is not None:
            kind = f"{self.gpu}:" if self.gpu else ""
            told |= {"gres": f"gpu:{kind}{self.processes}", "tasks_per_gpu": 0}
        return told

    def conflicts(self, there: Partition) -> list[str]:
        """Why it can never start in a partition, a sentence each."""
        fitting = [node for node in there.nodes if self._fits(node.cpus, node.memory_mb, dict(node.gpus))]
        wrong, name = [], f"partition {there.name}"
        if not there.up:
            wrong.append(f"{name} is down")
        if there.most_nodes and self.nodes > there.most_nodes:
            wrong.append(f"you asked {self.nodes} nodes; a job in {name} has at most {there.most_nodes}")
        if self.cpus > there.cpus:
            wrong.append(f"you asked {self.cpus} CPUs a node; {name} has {there.cpus}")
        if (self.memory_mb or 0) > there.memory_mb:
            wrong.append(f"you asked {self.memory_mb} MB a node; {name} has {there.memory_mb}")
        if self.gpu is not None and self._gpus(there) < self.processes:
            kind = f" {self.gpu}" if self.gpu else ""
            wrong.append(f"you asked {self.processes}{kind} GPUs a node; {name} has {self._gpus(there)}")
        if not wrong and len(fitting) < self.nodes:
            wrong.append(f"you asked {self.nodes} nodes; {name} has {len(fitting)} that fit")
        return wrong

    def _gpus(self, there: Partition) -> int:
        return max((self._of_kind(dict(node.gpus)) for node in there.nodes), default=0)

    def _of_kind(self, gpus: dict[str, int]) -> int:
        return gpus.get(self.gpu, 0) if self.gpu else sum(gpus.values())

    def _fits(self, cpus: int, memory_mb: int, gpus: dict[str, int]) -> bool:
        enough = self.gpu is None or self._of_kind(gpus) >= self.processes
        return cpus >= self.cpus and memory_mb >= (self.memory_mb or 0) and enough
