"""The only code that executes models; one library per file."""
