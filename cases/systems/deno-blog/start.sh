# start.sh RUN LOG_RATE UPSTREAM QUOTA OPTIONS...: starts the blog with these options of deno serve.
# If LOG_RATE is not 0, it is the number of bytes per second that a log collector reads. If UPSTREAM
# is nginx, starts it. If QUOTA is not 0, it is a CPU quota in microseconds per 100,000 microseconds.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

is_open() {
    python3 -c "from socket import *; create_connection(('127.0.0.1', $1))" 2> /dev/null
}

run=$1
log_rate=$2
upstream=$3
quota=$4
shift 4
if [ "$upstream" = nginx ]; then
    port=$(free_port)
    echo "server { listen 127.0.0.1:$port; return 200 'price'; }" > "$run/listen.conf"
    nginx -p "$run" -e stderr -c nginx.conf &
    until is_open "$port"; do
        sleep 0.05
    done
    export UPSTREAM="http://127.0.0.1:$port/"
fi
if [ "$log_rate" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$log_rate" < "$run/log" &
    exec > "$run/log"
fi
export RUN="$run" DENO_DIR="$run/deno" DENO_NO_UPDATE_CHECK=1
set -- node_modules/deno/deno serve --quiet --allow-all --no-lock "$@" server.js
if [ "$quota" != 0 ]; then
    exec sh ../../servers/quota.sh "$quota" "$@"
fi
exec "$@"
