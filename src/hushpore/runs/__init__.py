"""From files to result folders, and what is done with these: repeat, many at once, compare."""
