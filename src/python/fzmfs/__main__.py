"""``python -m fzmfs``: the program ``fzmfs``, wherever it was installed."""

import subprocess
import sys

from ._serve import _program

if __name__ == "__main__":
    try:
        sys.exit(subprocess.call([_program(), *sys.argv[1:]]))
    except KeyboardInterrupt:
        sys.exit(130)
