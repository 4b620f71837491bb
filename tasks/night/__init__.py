"""Stages of a night: train a challenger, and promote it if it is certified better."""
