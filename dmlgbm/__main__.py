"""`python -m dmlgbm`: the command line without its script."""

import sys

from dmlgbm.command_line.main import main

sys.exit(main())
