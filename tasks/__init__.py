"""Stage bodies and the Prefect task that brings a stage up to date: composition only."""

from cudal1.processes import isolate

isolate("tasks")
