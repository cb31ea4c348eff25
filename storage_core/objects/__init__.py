"""Storages of immutable objects: object stores and HDFS, behind one interface."""
