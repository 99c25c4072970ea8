"""Telemetry of a training: its journal of metrics, progress, timing, and the trackers that follow it."""
