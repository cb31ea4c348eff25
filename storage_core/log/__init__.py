"""One log: its segments, how they roll, how they are read."""
