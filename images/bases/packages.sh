#!/bin/bash
# Installs an image's own locked packages on its base. Usage: packages.sh REQUIREMENTS
set -euo pipefail
here=$(dirname "$0")
python=/opt/torch-pool/bin/python
marker=$(mktemp)
bash "$here/uv.sh" "$python" -r "$1"
# Only what is new: compiling all again would put a second copy of torch's bytecode into this layer.
find "$("$python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" -name '*.py' -cnewer "$marker" -print0 |
    xargs -0 -r "$python" -I -m compileall -q --invalidation-mode unchecked-hash
rm "$marker"
"$python" -I "$here/check_torch.py"
