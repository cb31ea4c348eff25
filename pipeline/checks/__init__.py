"""Checks of the logs of a place: by threads, or by tasks of Spark; copies of those of a store of objects."""
