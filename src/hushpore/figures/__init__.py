"""Pictures of results, on paper and in the window: colours, axes, distributions, slices.

Drawn with matplotlib's figure objects on their own canvas; nothing global is touched, so it works
in any thread and beside any window. matplotlib is imported where something is drawn.
"""
