"""The streaming job, its settings file and the command line."""
