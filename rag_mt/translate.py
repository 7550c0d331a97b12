"""`python -m rag_mt.translate`: the verb `translate` of `rag-mt`."""

import sys

from rag_mt.cli.translate import main

if __name__ == "__main__":
    sys.exit(main())
