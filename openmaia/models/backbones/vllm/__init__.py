"""The backbone that runs a vLLM engine in its own process."""
