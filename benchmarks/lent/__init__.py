"""Run benchmarks on a lent GPU machine that reaches no network: docs/lent-gpu.md says how."""
