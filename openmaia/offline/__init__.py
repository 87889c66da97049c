"""Services that let a run work without a GPU, a model hub and an API key. Nothing imports it by name."""
