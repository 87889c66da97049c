"""Removal of spurious features from a classifier: reproduces Table 2 of the MAIA paper (arXiv 2404.14394).

In the training images of the data set Spawrious each class of dogs is nearly always in one place, such as jungle or
snow, and in the test images the places are exchanged. An agent judges which units of a trained classifier are
selective: they respond to the object of one class itself. A spurious unit responds to something that only tends to come
along with a class, such as a place, or to several classes. A new linear classifier is fitted to the selective units
alone. In balanced sets of images, class and place are independent.
"""
