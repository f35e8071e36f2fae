"""Measurements of a scan for denoising and pores: grey values, noise, air around the sample."""
