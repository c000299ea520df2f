# start.sh RUN DELAY CAPABILITIES: starts the upstream if the handler is price, and then the
# service. The upstream takes DELAY milliseconds per request.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

if [ "$HANDLER" = price ]; then
    UPSTREAM=$(free_port)
    export UPSTREAM
    if [ "$2" = 0 ]; then
        echo "server { listen 127.0.0.1:$UPSTREAM; return 200 'Hello World'; }" > "$1/listen.conf"
        nginx -p "$1" -e stderr -c nginx.conf &
    else
        node ../node-http/server.js --port "$UPSTREAM" --work "$2" &
    fi
fi
exec target/warp-orders +RTS "-N$3"
