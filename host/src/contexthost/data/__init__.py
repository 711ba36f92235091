"""Files that ship with contexthost: the bundled demo session, `demo.jsonl`."""
