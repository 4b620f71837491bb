"""Measure the judge over HTTP: kills, overhead, hostile clients."""
