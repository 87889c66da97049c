"""The dispatcher of a pool: its queue, its admission control, its cache, and its replicas."""
