"""Windows: assigners, triggers, evictors, and the operators that evaluate them."""
