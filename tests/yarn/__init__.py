"""Tests on a small YARN."""
