"""Opening a store for writing, with crash recovery: a reopen after a crash finishes or undoes partial writes."""
