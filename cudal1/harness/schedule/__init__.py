"""Judge many candidates on several devices: queues, pools, and the processes that judge."""
