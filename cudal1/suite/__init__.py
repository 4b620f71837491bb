"""World 0: where problems come from, and which of them can be judged."""
