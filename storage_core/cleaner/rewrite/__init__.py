"""Segments written again without superseded records."""
