"""Proof of a run: made again and compared, and followed back to its scenes."""
