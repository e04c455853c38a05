"""A pipeline as a file or as an object: source, parsing, relations, steps, sink. No Spark here."""
