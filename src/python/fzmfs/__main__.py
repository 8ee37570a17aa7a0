"""The program of this package, wherever it was installed, as the main program of the module."""

import subprocess
import sys

from ._serve import _program

if __name__ == "__main__":
    try:
        sys.exit(subprocess.call([_program(), *sys.argv[1:]]))
    except KeyboardInterrupt:
        sys.exit(130)
