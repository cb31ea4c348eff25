"""What each verb of the command does."""
