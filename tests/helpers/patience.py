"""The longest time that a test waits for an event, which is enough on a very busy machine."""

PATIENCE = 900.0  # seconds
