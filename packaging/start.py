"""What a double click, a menu entry or the command of the bundled program starts."""

import sys
from multiprocessing import freeze_support

from hushpore.cli import main

freeze_support()
if len(sys.argv) == 1:
    sys.argv.append("gui")
main()
