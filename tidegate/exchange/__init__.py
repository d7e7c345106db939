"""How packets travel from subtask to subtask."""
