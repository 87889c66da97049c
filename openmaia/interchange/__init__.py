"""Other projects' formats: read into our stores, and written back."""
