"""Loading a log directory as a broker's start does."""
