"""The pieces of the bundled demo session: an invented project, its tools, and a story about working on it."""
