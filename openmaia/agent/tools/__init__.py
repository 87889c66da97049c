"""The agent's tools: what its code sees (`api`, `values`), and what answers its calls (`toolbox`)."""
