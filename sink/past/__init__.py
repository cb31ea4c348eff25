"""Earlier states of a store: cuts, the ledger's own past, and what of them can still be read."""
