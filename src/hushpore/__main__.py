"""``python -m hushpore``: the command line."""

from hushpore.cli import main

if __name__ == "__main__":
    main()
