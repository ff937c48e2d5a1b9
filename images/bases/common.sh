#!/bin/bash
# The common layer of every base: tini, compilers and pip where they are missing, the user, and /opt/torch-pool.
# Usage: common.sh PYTHON TORCH CUDA  (from images/bases.yaml; TORCH and CUDA empty for a base outside the table)
set -euo pipefail
here=$(dirname "$0")
python=$1 torch=$2 cuda=$3

missing=()
command -v tini >/dev/null || missing+=(tini)
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v g++ >/dev/null || missing+=(g++)
[ ${#missing[@]} -eq 0 ] || bash "$here/apt.sh" "${missing[@]}"

mkdir -p /opt/torch-pool/bin
ln -sf "$python" /opt/torch-pool/bin/python
"$python" -I -m pip --version >/dev/null 2>&1 || bash "$here/uv.sh" "$python" -r "$here/pip.txt"
bash "$here/uv.sh" "$python" --target /opt/torch-pool/vendor -r "$here/common.txt"
rm -f /opt/torch-pool/vendor/.lock
"$python" -I -m compileall -q --invalidation-mode unchecked-hash /opt/torch-pool/vendor
"$python" -I "$here/check_torch.py" ${torch:+"$torch" "$cuda"}

# What a derived image must not replace by accident: the base's own torch, its libraries, numpy. With ===, since
# == takes any local version: torch 2.6.0+cu118 would pass for 2.6.0 (PEP 440).
installed=$("$python" -I -m pip list --format=freeze --disable-pip-version-check)
{
    echo "# pip install -c /opt/torch-pool/constraints.txt PACKAGE keeps this image's torch."
    grep -E '^(torch|torchvision|torchaudio|triton|numpy|nvidia-[a-z0-9-]+)==' <<<"$installed" | sed 's/==/===/'
    grep -q '^torchvision==' <<<"$installed" || cat "$here/companions.txt"
} >/opt/torch-pool/constraints.txt

# Numeric, so that Kubernetes can check runAsNonRoot; group 0 and mode 1777, so that any --user can write.
grep -q '^[^:]*:[^:]*:1000:' /etc/passwd || echo 'torch-pool:x:1000:0::/home/torch-pool:/bin/bash' >>/etc/passwd
mkdir -p /home/torch-pool/.cache /workspace
chmod 1777 /home/torch-pool /home/torch-pool/.cache /workspace
