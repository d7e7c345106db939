"""The shell around the protocol in the Spark driver: inbox, threads, Spark calls."""
