"""Appending to a log, and undoing it."""
