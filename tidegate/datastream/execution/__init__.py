"""From a program to a running job; not imported by users."""
