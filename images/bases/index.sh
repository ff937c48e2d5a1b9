# Sourced: points uv at the machine's own package index and certificates (optional build secrets).
# One index, no second one to fall back to: a failure must stop the build.
if [ -s /run/secrets/ca ]; then
    export SSL_CERT_FILE=/run/secrets/ca
fi
if [ -s /run/secrets/index ]; then
    UV_DEFAULT_INDEX=$(cat /run/secrets/index)
    export UV_DEFAULT_INDEX
fi
