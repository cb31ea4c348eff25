"""The Delta tables of the maintenance job, below a store's `control/`."""
