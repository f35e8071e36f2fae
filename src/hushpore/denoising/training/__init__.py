"""Training of the denoiser: the step, the loop around it, its schedule and its state."""
