"""Order the stages."""

from cudal1.processes import isolate

if isolate("flows"):
    from tasks.server.prefect_home import load

    load()
