"""The logs of a store or of a broker's folder, for those who read."""
