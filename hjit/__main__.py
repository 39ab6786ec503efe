"""``python -m hjit``: the command."""

from __future__ import annotations

import sys

from hjit.cli import main

sys.exit(main())
