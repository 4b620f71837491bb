"""Train language models to write faster GPU code, and prove that the code is faster."""

from cudal1.processes import isolate

isolate("cudal1.cli")
