"""What runs inside a subtask. Knows batches, state and connectors; knows no Spark."""
