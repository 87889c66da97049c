"""Networks that are trained here rather than given: the classifiers whose spurious features are looked for."""
