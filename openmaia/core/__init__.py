"""Units, images, messages, service protocols and errors. This package imports no other package of OpenMAIA."""
