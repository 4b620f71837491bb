"""The order of things."""

from cudal1.processes import isolate

if isolate("flows"):
    from tasks.prefect_home import load

    load()
