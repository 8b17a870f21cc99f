"""Strategies that decide which values of two graphs stand for the same quantity."""
