"""What the agent's code sees (`api`, `values`), and what answers its calls (`toolbox`)."""
