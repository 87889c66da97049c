"""One file for each metric, or for a few related ones: `openmaia.evaluation.metric` finds them."""
