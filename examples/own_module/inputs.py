"""Example inputs of the layer: get_inputs, and the arguments of its constructor."""

import torch


def get_inputs():
    return {"x": torch.randn(1024, 512), "gate": torch.randn(1024, 512)}


def get_init_inputs():
    return [512]
