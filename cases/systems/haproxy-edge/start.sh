# start.sh RUN DELAY: starts the upstream on a free port, and then HAProxy with the configuration
# in the directory RUN. If DELAY is 0, the upstream is nginx. Otherwise, the upstream is a Node
# service that takes DELAY milliseconds per request.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

run=$1
delay=$2

UPSTREAM=$(free_port)
export UPSTREAM
if [ "$delay" = 0 ]; then
    echo "server { listen 127.0.0.1:$UPSTREAM; return 200 'Hello World'; }" > "$run/listen.conf"
    nginx -p "$run" -e stderr -c nginx.conf &
else
    node ../node-http/server.js --port "$UPSTREAM" --work "$delay" &
fi
exec haproxy -q -db -f "$run/haproxy.cfg"
