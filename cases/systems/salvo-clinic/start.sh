# start.sh RUN UPSTREAM: starts the clinic. If UPSTREAM is nginx, also starts the upstream.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

is_open() {
    python3 -c "from socket import *; create_connection(('127.0.0.1', $1))" 2> /dev/null
}

run=$1
if [ "$2" = nginx ]; then
    port=$(free_port)
    echo "server { listen 127.0.0.1:$port; return 200 'result'; }" > "$run/listen.conf"
    nginx -p "$run" -e stderr -c nginx.conf &
    until is_open "$port"; do
        sleep 0.05
    done
    export LAB="http://127.0.0.1:$port/"
fi
exec target/release/salvo-clinic
