"""Noise of a volume before denoising, and the residual afterwards."""
