"""MLflow: curves and checkpoints for people to look at, and the registry of policies."""
