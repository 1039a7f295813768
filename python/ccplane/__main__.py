"""`python -m ccplane` is the command `ccplane`."""

import ccplane

raise SystemExit(ccplane.main())
