"""World 3: weights. The only place that imports transformers and trl, inside functions."""
