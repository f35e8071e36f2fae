"""A job while it runs: its worker, progress, previews and times in the window."""
