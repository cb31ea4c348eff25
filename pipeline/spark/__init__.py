"""Sparklog's Spark sessions, jars and worker processes."""
