"""What a cleaning needs to know of a log before it starts."""
