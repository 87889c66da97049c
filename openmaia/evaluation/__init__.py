"""Tests descriptions: the images of a description must excite its unit more than other images do."""
