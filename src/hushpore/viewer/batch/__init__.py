"""The widget that runs a batch of scans."""
