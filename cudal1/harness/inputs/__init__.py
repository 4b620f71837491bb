"""Inputs of a problem: drawn, changed, and kept inside the domain that its generator promises."""
