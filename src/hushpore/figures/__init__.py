"""Pictures of results, on paper and in the window: colours, axes, distributions, slices.

They use matplotlib's figure objects with their own canvas, and no global state, so that they work
in any thread. matplotlib is imported on first use.
"""
