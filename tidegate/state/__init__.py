"""What an operator remembers: by key, by key group, by subtask."""
