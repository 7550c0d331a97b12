"""`python -m rag_mt`: the command `rag-mt`."""

import sys

from rag_mt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
