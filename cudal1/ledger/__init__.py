"""World 4: memory. The only place that imports duckdb."""

from cudal1.ledger.ledger import Ledger

__all__ = ["Ledger"]
