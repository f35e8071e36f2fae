"""Self-supervised denoising: R2R or N2V2, trained on the user's own noisy volume."""
