"""Removing spurious features: Table 2 of the MAIA paper.

layout.py     which pictures of a tree are training, validation, test and the balanced pool
drawn.py      draws a small tree of that layout
study.py      the steps for one classifier, each with a stored result
sparse.py     l1 and plain logistic regression
scoring.py    the rows of the table for one classifier
verdicts.py   what the agent answered
factorial.py  the same judgement without an agent
table.py      all classifiers together, beside the published figures
page.py       the figure and the page
"""
