"""Tools to test programs with; shipped to users, imported by nothing else of Tidegate."""
