"""Spark's workers and error texts."""
