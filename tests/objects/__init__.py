"""Stores of objects, on every kind of storage."""
