"""What is asked about a unit: prompts as files, and the grammar of the answers."""
