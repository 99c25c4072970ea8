"""Whether nodes of a cluster see a folder, from the type of its file system, since asking a node costs a job."""

import re
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
# Those that many machines mount; all others belong to one.
NETWORK_TYPES = {
    *("afs", "beegfs", "beegfs_nodev", "ceph", "ceph-fuse", "cephfs", "cifs", "gfs2", "glusterfs", "gpfs", "lustre"),
    *("nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "sshfs", "wekafs"),
}
# File systems of one kernel, also where its containers have names of their own; and cluster file systems with locks.
LOCAL_TYPES = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
GLOBAL_LOCKS = {"ceph", "gfs2", "gpfs", "ocfs2"}


@dataclass(frozen=True)
class Mount:
    """A file system and its mount point."""

    folder: Path
    type: str
    options: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether many machines see it."""
        return self.type.removeprefix("fuse.") in NETWORK_TYPES

    @property
    def locks_are_global(self) -> bool:
        """Whether flock() excludes all processes that see it, on whatever machine, and after a change of its name."""
        options = set(self.options.split(","))
        if self.type in ("nfs", "nfs4"):
            return not options & {"nolock", "local_lock=flock", "local_lock=all"}
        if self.type == "lustre":
            return "flock" in options
        return self.type in LOCAL_TYPES | GLOBAL_LOCKS

    def __str__(self) -> str:
        return f"{self.folder} ({self.type})"


def mounts(text: str | None = None) -> list[Mount]:
    """All file systems of this machine; none where it does not list them."""
    if text is None:
        text = MOUNTS.read_text() if MOUNTS.exists() else ""
    rows = [line.split() for line in text.splitlines()]
    return [Mount(Path(re.sub(r"\\(\d{3})", _character, row[1])), row[2], row[3]) for row in rows if len(row) > 3]


def _character(octal: "re.Match[str]") -> str:
    return chr(int(octal[1], 8))


def mount_of(folder: Path, known: list[Mount]) -> Mount | None:
    """The file system that holds a folder: the deepest, and of those the one mounted last."""
    resolved = folder.resolve()
    holding = [mount for mount in reversed(known) if resolved.is_relative_to(mount.folder)]
    return max(holding, key=lambda mount: len(mount.folder.parts), default=None)


def describe_sharing(folder: Path, known: list[Mount]) -> str:
    """A sentence on whether other nodes see what a run writes into a folder."""
    mount, shared = mount_of(folder, known), [str(mount) for mount in known if mount.is_shared]
    if mount and mount.is_shared:
        return f"{folder} is on {mount.type}, which nodes share"
    advice = f"use a folder of {', '.join(shared)}" if shared else "this machine has no shared file system"
    kind = mount.type if mount else "an unknown file system"
    return f"{folder} is on {kind}, which nodes may not see; {advice}"
