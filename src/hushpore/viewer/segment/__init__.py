"""The widget that segments pores: threshold, preview of the void, merge height."""
