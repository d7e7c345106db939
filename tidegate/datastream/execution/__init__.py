"""From a program to a running job: what users do not import."""
