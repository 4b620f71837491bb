"""Search for a faster version, prove it, keep it and show it: the work of `cudal1 optimize`."""
