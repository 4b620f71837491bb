"""Figures: frames in, SVG out."""
