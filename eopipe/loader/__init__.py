"""Chips of a training, in a known order: read, kept, prefetched by processes, finished on the device."""
