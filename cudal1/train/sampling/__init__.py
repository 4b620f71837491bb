"""Sample answers of a policy while it is trained."""
