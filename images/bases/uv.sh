#!/bin/bash
# Installs locked wheels: hashes required, nothing that the lock does not name, one index. No second index to fall
# back to: a failure must stop the build. Usage: uv.sh PYTHON [UV PIP INSTALL OPTION]...
# The secrets ca and index (the machine's own certificates and package index) are optional.
set -euo pipefail
python=$1
shift
if [ -s /run/secrets/ca ]; then
    export SSL_CERT_FILE=/run/secrets/ca
fi
if [ -s /run/secrets/index ]; then
    UV_DEFAULT_INDEX=$(cat /run/secrets/index)
    export UV_DEFAULT_INDEX
fi
# Its locks go where its cache is mounted: no part of an image.
export TMPDIR=/root/.cache/uv
exec /run/uv pip install --no-config --python "$python" --system --break-system-packages \
    --no-deps --require-hashes --link-mode copy "$@"
