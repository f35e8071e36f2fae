"""Steady diffusion and viscous flow, solved in the voxels of a phase."""
