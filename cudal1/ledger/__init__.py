"""The ledger, the memory of all facts (world 4); no other package imports duckdb."""

from cudal1.ledger.ledger import Ledger

__all__ = ["Ledger"]
