"""Maintenance runs: survey, plan, Spark job and report."""
