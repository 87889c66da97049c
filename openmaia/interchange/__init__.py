"""Other projects' formats: read into our stores, and written back. What comes in is data: nothing of it is executed."""
