"""Measure `cudal1 optimize`."""
