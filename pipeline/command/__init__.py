"""The command line: verbs, options and exit codes."""
