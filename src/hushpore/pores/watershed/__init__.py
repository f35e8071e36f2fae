"""From a void to pores: distance, basins about its peaks, their graph, and which of them merge."""
