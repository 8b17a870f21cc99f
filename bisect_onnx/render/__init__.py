"""A finished report to text."""
