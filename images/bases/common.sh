#!/bin/bash
# The common layer of every base: tini, compilers and pip where they are missing, the user, and /opt/torch-pool.
# Usage: common.sh PYTHON  (the base's interpreter, from images/bases.yaml)
set -euo pipefail
here=$(dirname "$0")
python=$1
source "$here/index.sh"

missing=()
command -v tini >/dev/null || missing+=(tini)
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v g++ >/dev/null || missing+=(g++)
[ ${#missing[@]} -eq 0 ] || bash "$here/apt.sh" "${missing[@]}"

install=(/run/uv/uv pip install --no-config --python "$python" --no-deps --link-mode copy --no-cache)
"$python" -m pip --version >/dev/null 2>&1 || "${install[@]}" --system --break-system-packages pip
mkdir -p /opt/torch-pool/bin
ln -s "$python" /opt/torch-pool/bin/python
"${install[@]}" --require-hashes -r "$here/common.txt" --target /opt/torch-pool/vendor
"$python" -I -m compileall -q --invalidation-mode unchecked-hash /opt/torch-pool/vendor

# What a derived image must not replace by accident: the base's own torch, its libraries, numpy.
{
    echo "# pip install -c /opt/torch-pool/constraints.txt PACKAGE keeps this image's torch."
    "$python" -I -m pip list --format=freeze --disable-pip-version-check |
        grep -E '^(torch|torchvision|torchaudio|triton|numpy|nvidia-[a-z0-9-]+)=='
    "$python" -I -m pip list --format=freeze --disable-pip-version-check | grep -q '^torchvision==' || cat "$here/companions.txt"
} >/opt/torch-pool/constraints.txt

# Numeric, so that Kubernetes can check runAsNonRoot; group 0 and mode 1777, so that any --user can write.
grep -q '^[^:]*:[^:]*:1000:' /etc/passwd || echo 'torch-pool:x:1000:0::/home/torch-pool:/bin/bash' >>/etc/passwd
mkdir -p /home/torch-pool/.cache /workspace
chmod 1777 /home/torch-pool /home/torch-pool/.cache /workspace
