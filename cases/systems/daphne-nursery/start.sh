# start.sh RUN HOST PORT LOG LOG_RATE: starts Daphne. If LOG is `on`, Daphne writes an access log. If
# LOG_RATE is not 0, it is the number of bytes per second that a log collector reads.
set -eu
run=$1
host=$2
port=$3
log=$4
rate=$5
set -- --verbosity 0 --endpoint "tcp:port=$port:interface=$host:backlog=1024" app:app
if [ "$rate" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$rate" < "$run/log" &
fi
if [ "$log" = on ]; then
    set -- --access-log "$run/log" "$@"
fi
exec target/venv/bin/daphne "$@"
