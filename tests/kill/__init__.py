"""Processes that are killed, stopped and started again."""
