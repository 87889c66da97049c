"""Natural pictures for exploring and testing neurons: where they come from and which half each belongs to."""
