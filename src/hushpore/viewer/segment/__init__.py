"""The widget for segmenting pores: threshold, void preview and merge height."""
