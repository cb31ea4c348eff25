"""Shows the files of a log as Kafka's dump tool does."""
