"""The command line: thin, everything it does can be done from Python."""
