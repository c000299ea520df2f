# start.sh RUN LOG_RATE: starts the upstream if the application calls it, and then the service. If
# LOG_RATE is not 0, it is the number of bytes per second that a log collector reads.
set -eu
cd "$(dirname "$0")"
if [ "$APP" = library ]; then
    # The upstream ends when the service closes the pipe.
    mkfifo "$1/upstream" "$1/port"
    python3 ../slow-upstream/upstream.py 20 < "$1/upstream" > "$1/port" &
    exec 3> "$1/upstream"
    read -r UPSTREAM < "$1/port"
    export UPSTREAM
fi
if [ "$2" != 0 ]; then
    mkfifo "$1/log"
    python3 ../../servers/slow.py "$2" < "$1/log" &
    exec 2> "$1/log"
fi
exec target/venv/bin/python app.py
