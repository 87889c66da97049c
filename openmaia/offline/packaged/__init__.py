"""Provides images for runs without a dataset, from downloaded Debian packages or from installed pip packages."""
