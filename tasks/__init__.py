"""Compose stage bodies, and the Prefect task that brings a stage up to date."""

from cudal1.processes import isolate

isolate("tasks")
