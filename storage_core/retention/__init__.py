"""Which segments of a log may go, and how they go."""
