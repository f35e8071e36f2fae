"""More phases than pore and solid: what each takes up, how thick it is, and where they touch."""
