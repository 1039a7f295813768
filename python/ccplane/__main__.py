"""Runs the command `ccplane`, as `python -m ccplane`."""

import ccplane

raise SystemExit(ccplane.main())
