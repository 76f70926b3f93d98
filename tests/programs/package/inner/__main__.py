"""`python -m package.inner`: relative imports, and names as the interpreter gives them."""

import json
import sys

from ..model import main

if __name__ == "__main__":
    main()
    print(json.dumps([__name__, __package__, __spec__.name, __file__, sys.argv]), flush=True)
