"""The kinds of pictures of the user: components of the section `pictures`."""
