"""Tests descriptions of units (neurons): images of a description must activate its unit more than other images."""
