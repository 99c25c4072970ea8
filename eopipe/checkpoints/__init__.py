"""Checkpoints of a training: written atomically, verified when read, kept apart by identity."""
