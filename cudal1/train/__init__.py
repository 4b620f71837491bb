"""World 3: weights. This package alone imports transformers and trl, inside functions."""
