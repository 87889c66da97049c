"""Config: the schema of all keys with their defaults, loading with overrides, and checks."""
