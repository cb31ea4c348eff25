"""Verbs of stores of objects."""
