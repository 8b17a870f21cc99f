"""Foreign model files to the graph of core; nothing is executed."""
