"""contexthost: keeps long coding-agent sessions inside their context window without losing what matters."""
