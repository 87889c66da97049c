"""Two-alternative forced choice: which of two labels fits a unit's exemplars better?

People answer on a page that hides where the labels come from; a language model answers the same questions. Every pair
is shown in both orders, so that a preference for the first label cancels out and can be reported. Answers of people and
of models are never pooled. Only those of people can be compared with the shares of choices in the MAIA paper (arXiv
2404.14394, table 1).
"""
