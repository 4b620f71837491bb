-- Which candidates are correct, faster, and could replace their module in a program, on which device and protocol?
from replacements order by suite, level, name, device_kind, protocol_id, certified desc, candidate_id
