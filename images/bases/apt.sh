#!/bin/bash
# Installs Debian packages with the machine's own mirror and certificates, and leaves no cache.
# Usage: apt.sh PACKAGE...  (secrets ca and apt_sources are optional)
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
options=(-o Acquire::Retries=3 -o Acquire::Languages=none)
if [ -s /run/secrets/ca ]; then
    options+=(-o Acquire::https::CAInfo=/run/secrets/ca)
fi
if [ -s /run/secrets/apt_sources ]; then
    options+=(-o Dir::Etc::SourceList=/run/secrets/apt_sources -o Dir::Etc::SourceParts=/dev/null)
fi
# The image's own hook would empty the cache mount.
rm -f /etc/apt/apt.conf.d/docker-clean
apt-get "${options[@]}" -q update
apt-get "${options[@]}" -q install -y --no-install-recommends "$@"
# Host-dependent or dated files that would make two builds differ.
rm -rf /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old
