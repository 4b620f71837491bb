"""Start, limit, watch and end worker processes; every candidate runs inside one."""
