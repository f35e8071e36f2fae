"""How the void hangs together: its Euler number, and what is connected from face to face."""
