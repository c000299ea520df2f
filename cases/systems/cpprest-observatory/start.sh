# start.sh RUN QUOTA HAS_UPSTREAM: starts the service. If QUOTA is not 0, it is a CPU quota in
# microseconds per 100,000 microseconds. If HAS_UPSTREAM is true, nginx starts as the upstream.
set -eu
run=$1
quota=$2
has_upstream=$3
UPSTREAM=0
if [ "$has_upstream" = true ]; then
    UPSTREAM=$(python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])')
    echo "server { listen 127.0.0.1:$UPSTREAM; return 200 'clear'; }" > "$run/listen.conf"
    nginx -p "$run" -e stderr -c nginx.conf &
fi
export UPSTREAM
if [ "$quota" != 0 ]; then
    exec sh ../../servers/quota.sh "$quota" target/observatory
fi
exec target/observatory
