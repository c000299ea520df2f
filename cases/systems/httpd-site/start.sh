# start.sh RUN HOST PORT [NAME=VALUE ...]: starts Apache httpd with a site in the directory RUN.
# Each NAME=VALUE sets a variable of httpd.conf. DELAY=MS passes all requests to a Node service that
# takes MS milliseconds. LOG_RATE=N logs to a program that reads N bytes per second.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

is_open() {
    python3 -c "from socket import *; create_connection(('127.0.0.1', $1))" 2> /dev/null
}

cd "$(dirname "$0")"
RUN=$1
HOST=$2
PORT=$3
shift 3

MODULES=/usr/lib/apache2/modules
MPM=event
STARTED=2
WORKERS=150
KEEPALIVE=On
DEFLATE=1
LOG=access.log
DELAY=0
LOG_RATE=0
for variable; do
    export "${variable?}"
done
if [ "$LOG_RATE" != 0 ]; then
    LOG="|$(command -v python3) $PWD/../../servers/slow.py $LOG_RATE"
fi
export RUN HOST PORT MODULES MPM STARTED WORKERS KEEPALIVE DEFLATE LOG

mkdir -p "$RUN/htdocs" "$RUN/cgi-bin"
printf 'Hello World' > "$RUN/htdocs/hello.html"
cp hello.cgi "$RUN/cgi-bin/index"
chmod 755 "$RUN/cgi-bin/index"
awk 'BEGIN { srand(1); for (row = 0; row < 1000; row++)
    printf "<tr><td>%d<td>customer %d<td>%.2f</tr>\n", row, rand() * 100000, rand() * 1000 }' \
    > "$RUN/htdocs/report.html"

if [ "$DELAY" != 0 ]; then
    UPSTREAM=$(free_port)
    export UPSTREAM
    node ../node-http/server.js --port "$UPSTREAM" --work "$DELAY" &
    # The server would retry an upstream that is not ready only after a pause.
    until is_open "$UPSTREAM"; do
        sleep 0.05
    done
    set -- -D UPSTREAM
else
    set --
fi
exec apache2 -d "$RUN" -f "$PWD/httpd.conf" -D FOREGROUND "$@"
