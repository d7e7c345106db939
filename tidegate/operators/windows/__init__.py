"""Windows: which there are, who assigns and fires them, and what runs on them."""
