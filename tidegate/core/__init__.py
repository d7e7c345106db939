"""The vocabulary of all layers: ids, errors, clocks, settings. Imports no other package."""
