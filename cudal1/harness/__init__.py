"""Judge untrusted code in processes of a device (world 1); `docs/protocol.md` says how."""
