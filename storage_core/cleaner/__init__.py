"""Compaction: plans a cleaning, writes new segments without superseded records, swaps them in."""
