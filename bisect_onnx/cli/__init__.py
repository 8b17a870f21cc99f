"""Parse, call one use case, render, exit."""
