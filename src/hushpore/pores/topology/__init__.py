"""Topology of the void: Euler number, percolation and tortuosity."""
