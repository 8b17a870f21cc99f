"""Pure values and functions: the standard library and numpy, nothing that executes a model."""
