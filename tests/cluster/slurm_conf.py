"""The configuration of a temporary Slurm."""

from dataclasses import dataclass
from pathlib import Path

CPUS, MEMORY_MB, GPUS = 8, 8000, 2


@dataclass(frozen=True)
class ClusterLayout:
    """The layout of a cluster: its folder, the name and address of its controller, the addresses of its nodes."""

    root: Path
    host: str
    controller: str
    addresses: tuple[str, ...]
    port: int
    accounting: bool
    separate: bool

    @property
    def socket(self) -> Path:
        """The socket of munge."""
        return self.root / "munge" / "munge.socket"

    @property
    def names(self) -> list[str]:
        """The nodes."""
        return [f"node{number}" for number in range(1, len(self.addresses) + 1)]

    def port_of(self, number: int) -> int:
        """Nodes that share an address need different ports."""
        return self.port + 10 + (0 if self.separate else number)


def slurm_conf(layout: ClusterLayout) -> str:
    """No cgroups and no affinity, so that it runs in any sandbox; memory limits are polled."""
    root = layout.root
    lines = [
        "ClusterName=eopipe",
        f"SlurmctldHost={layout.host}({layout.controller})",
        f"SlurmctldPort={layout.port + 1}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.socket}",
        "CredType=cred/munge",
        f"StateSaveLocation={root}/state",
        f"SlurmdSpoolDir={root}/spool/%n",
        f"SlurmctldPidFile={root}/run/slurmctld.pid",
        f"SlurmdPidFile={root}/run/slurmd.%n.pid",
        f"SlurmctldLogFile={root}/log/slurmctld.log",
        f"SlurmdLogFile={root}/log/slurmd.%n.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=2",
        "JobAcctGatherParams=OverMemoryKill",
        # A request that can never start is refused instead of waiting for ever.
        "EnforcePartLimits=ALL",
        "MpiDefault=none",
        "SwitchType=switch/none",
        # The nodes claim more than the machine has.
        "SlurmdParameters=config_overrides",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_interval=2,sched_min_interval=0,batch_sched_delay=0",
        "ReturnToService=2",
        "SlurmctldTimeout=10",
        "SlurmdTimeout=10",
        "InactiveLimit=0",
        "KillWait=20",
        "OverTimeLimit=0",
        "MinJobAge=600",
        "GresTypes=gpu",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "JobRequeue=1",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={root}/log/jobcomp.txt",
        *_accounting(layout),
        *_nodes(layout),
        *_partitions(),
    ]
    return "\n".join(lines) + "\n"


def _accounting(layout: ClusterLayout) -> list[str]:
    if not layout.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={layout.port + 2}",
        f"AccountingStoragePass={layout.socket}",
        "AccountingStoreFlags=job_comment",
        "AccountingStorageTRES=gres/gpu",
    ]


def _nodes(layout: ClusterLayout) -> list[str]:
    resources = f"CPUs={CPUS} RealMemory={MEMORY_MB} Gres=gpu:{GPUS} State=UNKNOWN"
    return [
        f"NodeName={name} {'' if layout.separate else 'NodeHostname=localhost '}NodeAddr={address} "
        f"Port={layout.port_of(number)} {resources}"
        for number, (name, address) in enumerate(zip(layout.names, layout.addresses, strict=True), 1)
    ]


def _partitions() -> list[str]:
    common = "Nodes=ALL MaxTime=60 DefMemPerCPU=500 State=UP"
    return [
        f"PartitionName=debug {common} Default=YES PriorityTier=10 PreemptMode=OFF",
        f"PartitionName=gpu {common} PriorityTier=10 PreemptMode=OFF",
        f"PartitionName=low {common} PriorityTier=1 PreemptMode=REQUEUE GraceTime=20",
    ]


def gres_conf(layout: ClusterLayout) -> str:
    """GPUs that are counted but are not real devices."""
    return f"NodeName=node[1-{len(layout.addresses)}] Name=gpu File={layout.root}/fake/gpu[0-{GPUS - 1}]\n"


def slurmdbd_conf(layout: ClusterLayout) -> str:
    """The daemon of the accounting, on loopback."""
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.socket}",
        f"DbdHost={layout.host}",
        "DbdAddr=127.0.0.1",
        f"DbdPort={layout.port + 2}",
        "SlurmUser=root",
        f"LogFile={layout.root}/log/slurmdbd.log",
        f"PidFile={layout.root}/run/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=127.0.0.1",
        f"StoragePort={layout.port + 3}",
        "StorageUser=slurm",
        "StoragePass=slurm",
        "StorageLoc=slurm_acct_db",
    ]
    return "\n".join(lines) + "\n"
