"""In the place of torchrun on a host: writes down its arguments and the environment that it was given."""

import json
import os
import sys
from pathlib import Path

(node,) = [word.partition("=")[2] for word in sys.argv if word.startswith("--node-rank=")]
Path(f"recorded-{node}").write_text(json.dumps({**os.environ, "argv": " ".join(sys.argv[1:])}))
