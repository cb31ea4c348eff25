"""Small Delta tables of a store on a local disk: the ledger, lost ranges, control tables."""
