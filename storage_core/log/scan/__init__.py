"""Batches of segments one after the other."""
