"""The vocabulary of every layer: ids, errors, clocks, settings. Imports nothing else of ours."""
