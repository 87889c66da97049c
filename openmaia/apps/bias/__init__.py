"""Tests an agent's claims about biases of a classifier on matched images, and collects the errors that biases cause."""
