"""Train language models to write faster GPU code, and prove that the code is faster."""
