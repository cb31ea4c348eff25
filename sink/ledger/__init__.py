"""The ledger, a Delta table of all commits, and the table of lost ranges."""
