"""Two-alternative forced choice: which of two labels fits a unit's exemplars, by people on a blind page, or by a model.

Every pair is shown twice, in both orders, so that a habit of choosing the first cancels out and can be reported. What
people say and what a model says are never one number, and only people's may stand beside the papers' figure.
"""
