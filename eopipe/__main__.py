"""`python -m eopipe` is the `eopipe` command."""

import sys

from eopipe.cli import main

sys.exit(main())
