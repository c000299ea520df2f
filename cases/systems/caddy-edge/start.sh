# start.sh RUN HOST PORT [NAME=VALUE ...]: starts Caddy. Each NAME=VALUE sets a variable of the
# Caddyfile. DELAY=MS starts an upstream that takes MS milliseconds per request. LOG_RATE=N logs to
# a collector that reads N bytes per second.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

cd "$(dirname "$0")"
RUN=$1
SITE_HOST=$2
SITE_PORT=$3
shift 3

SITE=hello
DELAY=none
KEEPALIVE=60s
MAX_CONNS=0
LEVEL=1
LOG_RATE=0
for variable; do
    export "${variable?}"
done
export RUN SITE_HOST SITE_PORT SITE KEEPALIVE MAX_CONNS LEVEL

awk 'BEGIN { srand(1); for (row = 0; row < 1000; row++)
    printf "<tr><td>%d<td>customer %d<td>%.2f</tr>\n", row, rand() * 100000, rand() * 1000 }' \
    > "$RUN/report.html"
# The template renders 200 rows, but the response contains none of them.
echo '{{range until 200}}{{$row := printf "customer %d" . | upper}}{{end}}Hello World' | tr -d '\n' \
    > "$RUN/page.html"

UPSTREAM=$(free_port)
TLS=$(free_port)
export UPSTREAM TLS
case $DELAY in
none) ;;
0)
    echo "server { listen 127.0.0.1:$UPSTREAM; return 200 'Hello World'; }" > "$RUN/listen.conf"
    nginx -p "$RUN" -e stderr -c nginx.conf &
    ;;
*)
    node ../node-http/server.js --port "$UPSTREAM" --work "$DELAY" &
    ;;
esac
export HOME="$RUN" XDG_DATA_HOME="$RUN" XDG_CONFIG_HOME="$RUN"
if [ "$LOG_RATE" != 0 ]; then
    mkfifo "$RUN/log"
    python3 ../../servers/slow.py "$LOG_RATE" < "$RUN/log" &
    exec > "$RUN/log" 2>&1
fi
exec caddy run --config Caddyfile --adapter caddyfile
