"""Services that let a run work without a GPU, a model hub and an API key. Only cli/assembly imports this package."""
