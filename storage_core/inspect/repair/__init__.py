"""Repairs what a check found."""
