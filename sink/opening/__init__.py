"""Opening a store for writing: what a crash left is finished or undone."""
