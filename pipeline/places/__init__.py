"""The logs of a store or of a broker's folder, opened for reading."""
