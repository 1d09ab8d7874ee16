"""The changes of the positives: one policy per file, each a `Policy` with the hooks that it needs."""
