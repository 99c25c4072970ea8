"""The data loader: chips in a deterministic order, cached, prefetched by worker processes, finished on the device."""
