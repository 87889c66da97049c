"""Removal of spurious features from a classifier: reproduces Table 2 of the MAIA paper (arXiv 2404.14394).

In the training images of the data set Spawrious each class of dogs is nearly always in one place, such as jungle or
snow, and in the test images the places are exchanged. An agent judges which units of a trained classifier are
selective: they respond to the object of one class itself. A spurious unit responds to something that only tends to come
along with a class, such as a place, or to several classes. A new linear classifier is fitted to the selective units
alone. In balanced sets of images, class and place are independent.

layout.py     divides the images into training, validation, test, and a pool for validation sets with balanced places
drawing.py    generates a small data set with the same layout
study.py      conducts the study of one classifier, and stores the result of each step
sparse.py     fits logistic regression with and without l1
scoring.py    computes the rows of the table for one classifier
verdicts.py   configures the agent's run and reads its answers
factorial.py  decides without an agent which units are selective
table.py      averages over all classifiers and adds the numbers of the paper
page.py       writes the chart and the page
"""
