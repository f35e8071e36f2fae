"""Self-supervised denoising: N2V2, trained on the user's own noisy volume."""
