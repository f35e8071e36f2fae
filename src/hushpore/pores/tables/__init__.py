"""What is told of pores and throats, and of the whole: each number declared once."""
