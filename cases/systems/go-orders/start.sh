# start.sh RUN DELAY GOGC GOMAXPROCS OPTIONS...: starts the order service. If DELAY is 0, the stock
# service is nginx. If DELAY is a number of milliseconds, the stock service is a second order
# service that takes this time. If DELAY is none, there is no stock service.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

run=$1
delay=$2
gogc=$3
procs=$4
shift 4

if [ "$delay" != none ]; then
    port=$(free_port)
    if [ "$delay" = 0 ]; then
        echo "server { listen 127.0.0.1:$port; return 200 'in stock'; }" > "$run/listen.conf"
        nginx -p "$run" -e stderr -c nginx.conf &
    else
        target/go-orders -listen "127.0.0.1:$port" -handler slots -delay "${delay}ms" &
    fi
    set -- "$@" -stock "http://127.0.0.1:$port/"
fi
GOGC=$gogc GOMAXPROCS=$procs exec target/go-orders "$@"
