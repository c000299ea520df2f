# start.sh RUN HOST PORT [NAME=VALUE ...]: starts lighttpd with a site in the directory RUN.
# CONNECTIONS, REQUESTS and LEVEL set limits of lighttpd. DELAY=MS passes all requests to a Node
# service that takes MS milliseconds.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

is_open() {
    python3 -c "from socket import *; create_connection(('127.0.0.1', $1))" 2> /dev/null
}

cd "$(dirname "$0")"
RUN=$1
SITE_HOST=$2
SITE_PORT=$3
shift 3
export RUN SITE_HOST SITE_PORT

CONNECTIONS=1000
REQUESTS=1000
LEVEL=1
DELAY=0
for variable; do
    export "${variable?}"
done

mkdir -p "$RUN/htdocs"
printf 'Hello World' > "$RUN/htdocs/index.html"
awk 'BEGIN { srand(1); for (row = 0; row < 1000; row++)
    printf "<tr><td>%d<td>customer %d<td>%.2f</tr>\n", row, rand() * 100000, rand() * 1000 }' \
    > "$RUN/htdocs/report.html"
cat > "$RUN/limits.conf" <<LIMITS
server.max-connections = $CONNECTIONS
server.max-keep-alive-requests = $REQUESTS
deflate.compression-level = $LEVEL
LIMITS
if [ "$DELAY" != 0 ]; then
    upstream=$(free_port)
    node ../node-http/server.js --port "$upstream" --work "$DELAY" &
    # The server would retry an upstream that is not ready only after a pause.
    until is_open "$upstream"; do
        sleep 0.05
    done
    echo "proxy.server = ( \"\" => (( \"host\" => \"127.0.0.1\", \"port\" => $upstream )) )" >> "$RUN/limits.conf"
fi
exec lighttpd -D -f lighttpd.conf
