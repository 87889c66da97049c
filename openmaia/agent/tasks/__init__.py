"""The questions that an agent is asked about a unit: files with prompts, and the parser of its replies."""
