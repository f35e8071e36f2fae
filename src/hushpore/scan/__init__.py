"""What is seen in a scan before any job: grey values, noise, and the air around its sample."""
