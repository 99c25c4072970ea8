"""The training loop, and how a step turns chips into weights in any world."""
