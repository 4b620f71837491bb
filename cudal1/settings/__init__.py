"""Settings as records: params.yaml, profiles and protocols."""
