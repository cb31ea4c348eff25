"""Offset and time indexes. Bytes in, values out."""
