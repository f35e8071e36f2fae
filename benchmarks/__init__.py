"""Benchmarks: python -m benchmarks [NAME ...] runs them and keeps the figures in results/."""
