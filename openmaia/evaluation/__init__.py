"""Tests descriptions of units: images generated from a description must activate the unit more than other images."""
