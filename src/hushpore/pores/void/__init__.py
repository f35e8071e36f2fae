"""What is void: grey values, thresholds, the air around a sample, and the parts of the void."""
