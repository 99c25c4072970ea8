"""Whether nodes of a cluster can see a folder: told by the kind of its file system, since asking a node costs a job."""

import re
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
# Those that many machines mount; all others belong to one.
NETWORK = {"afs", "beegfs", "beegfs_nodev", "ceph", "cephfs", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs"}
NETWORK |= {"nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "sshfs", "wekafs", "ceph-fuse"}


@dataclass(frozen=True)
class Mount:
    """A file system, and where it lies."""

    folder: Path
    kind: str

    @property
    def shared(self) -> bool:
        """Whether it is one that many machines see."""
        return self.kind.removeprefix("fuse.") in NETWORK

    def __str__(self) -> str:
        return f"{self.folder} ({self.kind})"


def mounts(text: str | None = None) -> list[Mount]:
    """All file systems of this machine; none where it does not tell."""
    if text is None:
        text = MOUNTS.read_text() if MOUNTS.exists() else ""
    words = [line.split() for line in text.splitlines()]
    return [Mount(Path(re.sub(r"\\(\d{3})", _letter, row[1])), row[2]) for row in words if len(row) > 2]


def _letter(found: "re.Match[str]") -> str:
    return chr(int(found[1], 8))


def under(folder: Path, known: list[Mount]) -> Mount | None:
    """The file system that holds a folder: the deepest, and of those the one mounted last."""
    place = folder.resolve()
    holding = [mount for mount in known if place.is_relative_to(mount.folder)]
    return max(holding, key=lambda mount: len(mount.folder.parts), default=None) if holding else None


def sharing(folder: Path, known: list[Mount]) -> str:
    """A sentence on whether other nodes see what a run writes into a folder."""
    mount, shared = under(folder, known), [str(one) for one in known if one.shared]
    if mount and mount.shared:
        return f"{folder} lies on {mount.kind}, which nodes share"
    where = f"use a folder of {', '.join(shared)}" if shared else "no file system here is one that machines share"
    return f"{folder} lies on {mount.kind if mount else 'an unknown file system'}, which nodes may not see; {where}"
