"""Files of laboratory scanners and their reconstruction programs."""
