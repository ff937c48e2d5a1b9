"""Start a command under this image's profile; every container of the image starts here.

Python runs this with -I -S: nothing that a user mounts or sets can change what is imported.
"""  # noqa: INP001 - a script, in no package

import sys

sys.path.insert(0, f"{__file__.rpartition('/')[0] or '.'}/lib")

import baked
from torch_pool.launch import main

sys.exit(main(sys.argv[1:], baked))
