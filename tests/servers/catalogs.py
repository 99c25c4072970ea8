"""The catalogs whose scenes the servers have; the shared one may not be there."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
CATALOGS = {"sample": ROOT / "sample", "shared": ROOT.parent / "shared/data"}
