"""The small files around a log: text checkpoints, epochs, ids."""
