"""Who may change a store: the writer's, the taker's and the broker's lock."""
