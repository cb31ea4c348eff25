"""Survey of a log before its cleaning."""
