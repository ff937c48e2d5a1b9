#!/bin/bash
# Installs the locked wheels, drops what no PyTorch program uses, compiles the rest to bytecode.
# Runs inside the build; the secrets ca and index are optional.
set -euo pipefail
here=$(dirname "$0")
site=/usr/local/lib/python3.11/dist-packages
source "$here/../index.sh"
/run/uv/uv pip install --system --no-config --no-deps --require-hashes --link-mode copy \
    --python /usr/bin/python3.11 -r "$here/requirements.txt"
python3.11 -I "$here/prune.py" "$site"
# Unchecked: nobody edits these files, and a read-only root or an unknown uid cannot write a cache.
python3.11 -I -m compileall -q -j 0 --invalidation-mode unchecked-hash "$site"
python3.11 -I "$here/loads.py" "$site"
