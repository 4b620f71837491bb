"""Measurements that claims rest on; each prints a table and leaves JSON in results/."""
