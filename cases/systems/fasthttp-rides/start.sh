# start.sh RUN DELAY OPTIONS...: starts the ride service. If DELAY is 0, the upstream is nginx. If
# DELAY is a number of milliseconds, the upstream is a Node service that takes this time. If DELAY
# is none, there is no upstream.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

is_open() {
    python3 -c "from socket import *; create_connection(('127.0.0.1', $1))" 2> /dev/null
}

run=$1
delay=$2
shift 2
if [ "$delay" != none ]; then
    port=$(free_port)
    if [ "$delay" = 0 ]; then
        echo "server { listen 127.0.0.1:$port; return 200 'price'; }" > "$run/listen.conf"
        nginx -p "$run" -e stderr -c nginx.conf &
    else
        node ../node-http/server.js --port "$port" --work "$delay" &
    fi
    until is_open "$port"; do
        sleep 0.05
    done
    set -- "$@" -upstream "http://127.0.0.1:$port/"
fi
exec target/fasthttp-rides -journal "$run/journal" "$@"
