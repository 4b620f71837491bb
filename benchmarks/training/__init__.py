"""Measurements of a policy's learning and sampling: speed and memory."""
