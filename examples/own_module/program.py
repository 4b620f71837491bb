"""A program that calls the layer with two sets of shapes."""

import torch
from layers import GatedNorm

layer = GatedNorm(512).eval()
with torch.no_grad():
    for rows in (256, 1024):
        layer(torch.randn(rows, 512), gate=torch.randn(rows, 512))
