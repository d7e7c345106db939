"""Operator state: by key, by key group, by subtask."""
