"""The training loop and what keeps it: world, data order, checkpoints, signals."""
