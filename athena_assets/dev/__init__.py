"""For developers: the embedded AWS in the foreground, and with it a whole Dagster (`make dev`)."""
