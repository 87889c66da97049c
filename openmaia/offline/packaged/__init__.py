"""Provides images from Debian and Python packages, downloaded at run time, for runs without a dataset."""
