"""Words that patterns look for, in a comment; a try that only cleans up.

twin: A48
problem: wasteful
expect: gain
"""
import torch
import torch.nn as nn

# pass, threading, time.time = None, torch.cuda.Stream, subprocess: none of it is used here


class ModelNew(nn.Module):
    def forward(self, x, y):
        try:
            return x @ y
        finally:
            del x
