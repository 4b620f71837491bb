"""Serve the judge over HTTP, to clients that may be hostile.

One process takes submissions, keeps them in a queue on disk, and leads the judges of its devices.
No problem and no candidate runs in it. docs/serve.md describes it, docs/threat-model.md says what
is defended.
"""
