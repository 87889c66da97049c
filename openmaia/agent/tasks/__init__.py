"""Tasks: files with prompts, and the parser of replies."""
