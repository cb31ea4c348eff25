"""Retention: selects old segments of a log, and deletes them."""
