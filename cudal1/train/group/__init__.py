"""Training over several processes, each of one device."""
