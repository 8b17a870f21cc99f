"""The use cases: an order of steps, no printing, no parsing."""
