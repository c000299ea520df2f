# start.sh RUN LOG_RATE OPTIONS...: starts the server. If LOG_RATE is not 0, it is the number of
# bytes per second that a log collector reads.
set -eu
run=$1
rate=$2
shift 2
if [ "$rate" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$rate" < "$run/log" &
    exec > "$run/log"
fi
exec node server.js --run "$run" "$@"
