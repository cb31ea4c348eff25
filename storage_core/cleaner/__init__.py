"""Compaction: which part of a log is cleaned, what stays of it, and how the new segments take the place of the old."""
