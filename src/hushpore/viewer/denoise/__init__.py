"""The widget that denoises."""
