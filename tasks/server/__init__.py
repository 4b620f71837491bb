"""Keep programs running for a checkout: Prefect, MLflow's UI, one flow at a time."""
