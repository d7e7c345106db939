"""Tools to test programs; shipped to users, used by no other package."""
