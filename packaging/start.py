"""What a double click, a menu entry or the command of the bundled program starts."""

import os
import sys
from multiprocessing import freeze_support

from hushpore.cli import main

# PyInstaller's is new and empty at each start, and matplotlib would look for all fonts again
os.environ.pop("MPLCONFIGDIR", None)

freeze_support()
if len(sys.argv) == 1:
    sys.argv.append("gui")
main()
