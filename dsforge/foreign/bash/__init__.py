"""Shell scripts read, never run: what their variables, files and command lines come to."""
