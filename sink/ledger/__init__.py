"""The Delta table that says what is committed, and its damage."""
