"""State dicts to and from other implementations. Nothing here reads or writes a file."""
