"""Idempotent and transactional producers of a log."""
