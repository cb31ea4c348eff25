"""Records, offsets and timestamps of a log, as consumers ask for them."""
