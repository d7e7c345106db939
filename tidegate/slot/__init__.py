"""The shell around the protocol in a long-running Spark task: mailbox, subtasks, snapshots."""
