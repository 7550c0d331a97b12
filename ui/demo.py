"""`python -m ui.demo`: the demo in the browser."""

import sys

from ui.page.demo import main

if __name__ == "__main__":
    sys.exit(main())
