"""Start the workers of a training: lease, rendezvous, torchrun's agent, signals, and why a training ended."""
