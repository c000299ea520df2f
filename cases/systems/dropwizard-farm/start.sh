# start.sh RUN REQUEST_LOG LOG_RATE HEAP: starts the service. If REQUEST_LOG is true, it logs each
# request. If LOG_RATE is not 0, it is the number of bytes per second that a log collector reads.
set -eu
export REQUEST_LOG='[]'
if [ "$2" = true ]; then
    REQUEST_LOG='[{ type: console }]'
fi
if [ "$3" != 0 ]; then
    mkfifo "$1/log"
    python3 ../../servers/slow.py "$3" < "$1/log" &
    exec > "$1/log"
fi
if [ "$APP" = weather ]; then
    # The upstream ends when the service closes the pipe.
    mkfifo "$1/upstream" "$1/port"
    python3 ../slow-upstream/upstream.py 20 < "$1/upstream" > "$1/port" &
    exec 3> "$1/upstream"
    read -r UPSTREAM < "$1/port"
    export UPSTREAM
fi
exec java "-Xmx$4" -cp 'target/classes:target/lib/*' app.Farm server config.yml
