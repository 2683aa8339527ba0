"""How long a test waits for what must come: so long that no machine is too busy for it."""

PATIENCE = 900.0  # seconds
