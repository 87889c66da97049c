"""Two-alternative forced choice: which of two labels fits a unit's exemplars better?

Exemplars are the images that activate the unit most. People answer on a page that hides where the labels come from; a
language model answers the same questions. Every pair of labels is shown in both orders, so that a preference for the
first label cancels out and can be reported. Answers of people and of models are never pooled. Only the answers of
people can be compared with the shares of choices that the MAIA paper reports (arXiv 2404.14394, table 1).
"""
