"""The agent's instruments: what its code sees (api), and who answers its calls (toolbox)."""
