"""Maintenance of stores of objects: retention, compaction, erasure, and the removal of old objects."""
