"""What a training tells while it runs: metrics, progress, where its time goes, and the trackers that show it."""
