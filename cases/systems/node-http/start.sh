# start.sh HOST PORT RUN STOCK SOCKETS FLUSH: starts the order service. If STOCK is not 0, the
# service calls a stock service that takes STOCK milliseconds per request.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

stock=0
if [ "$4" != 0 ]; then
    stock=$(free_port)
    node server.js --port "$stock" --work "$4" &
fi
exec node server.js --host "$1" --port "$2" --audit "$3/audit.log" \
    --stock "$stock" --sockets "$5" --flush "$6"
