# start.sh RUN HOST PORT LOG_RATE QUOTA: starts the application. If LOG_RATE is not 0, it is the number
# of bytes per second that a log collector reads. If QUOTA is not 0, it is a CPU quota in
# microseconds per 100,000 microseconds.
set -eu
cd "$(dirname "$0")"
if [ "$4" != 0 ]; then
    mkfifo "$1/log"
    python3 ../../servers/slow.py "$4" < "$1/log" &
    exec > "$1/log"
fi
# A trial with a command does not build the system.
[ -e target/venv/bin/python ] || sh build.sh
set -- "$5" target/venv/bin/python app.py "$2" "$3"
if [ "$1" != 0 ]; then
    exec sh ../../servers/quota.sh "$@"
fi
shift
exec "$@"
