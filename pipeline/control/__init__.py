"""The Delta tables of maintenance runs, below a store's `control/`."""
