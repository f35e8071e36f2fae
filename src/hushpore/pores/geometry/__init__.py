"""What is measured on voxels: sums, contacts, surface, lines, and the balls that fit."""
