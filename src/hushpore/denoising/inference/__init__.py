"""A trained network applied: on tiles, volumes, and blocks of volumes."""
