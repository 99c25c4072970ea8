"""Checkpoints that cannot be lost or mixed up."""
