"""Proves exactly-once by killing things: runs a job undisturbed and killed, compares its sink."""
