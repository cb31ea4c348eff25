"""Copies of stores of a machine in stores of objects."""
