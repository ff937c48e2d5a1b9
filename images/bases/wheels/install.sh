#!/bin/bash
# Installs the locked wheels, drops what no PyTorch program uses, compiles the rest and checks that it still loads.
set -euo pipefail
here=$(dirname "$0")
site=/usr/local/lib/python3.11/dist-packages
bash "$here/../uv.sh" /usr/bin/python3.11 -r "$here/requirements.txt"
python3.11 -I "$here/prune.py" "$site"
# Unchecked: nobody edits these files, and a read-only root or an unknown uid cannot write a cache.
python3.11 -I -m compileall -q -j 0 --invalidation-mode unchecked-hash "$site"
python3.11 -I "$here/loads.py" "$site"
