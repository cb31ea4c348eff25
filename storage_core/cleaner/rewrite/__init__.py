"""Rewrites segments without superseded records."""
