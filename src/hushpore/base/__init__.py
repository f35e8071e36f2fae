"""The contract: volumes, settings, events and errors. Imports NumPy and nothing of hushpore."""
