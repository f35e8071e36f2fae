"""Running jobs: worker, progress, previews and timing in the window."""
