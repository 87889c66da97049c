"""Where the marks of a figure go. Numbers only: whoever draws them escapes the texts."""
