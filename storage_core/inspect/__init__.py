"""Tools that look at a log and judge it."""
