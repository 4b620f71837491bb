"""Admission: a trial of each reference, and of the check that its candidates must pass."""
