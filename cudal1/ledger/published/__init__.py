"""Facts of many machines as Parquet shards in a folder or in a bucket of object storage.

Each machine keeps its own ledger, and publishes what the others lack (`publishing.py`). A reader
sees the tables and views of a ledger over the shards of all machines (`reading.py`).
"""
