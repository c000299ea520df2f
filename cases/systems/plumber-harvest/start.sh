# start.sh RUN HAS_UPSTREAM LOG_RATE QUOTA: starts the service. If HAS_UPSTREAM is true, an upstream
# starts first, which responds after 20 ms. If LOG_RATE is not 0, it is the number of bytes per
# second that a log collector reads. If QUOTA is not 0, it is a CPU quota in microseconds per
# 100,000 microseconds.
set -eu
cd "$(dirname "$0")"
run=$1
if [ "$2" = true ]; then
    mkfifo "$run/open" "$run/port"
    python3 ../slow-upstream/upstream.py 20 < "$run/open" > "$run/port" &
    # The upstream ends when the service does.
    exec 3> "$run/open"
    read -r port < "$run/port"
    export UPSTREAM="http://127.0.0.1:$port/forecast"
fi
if [ "$3" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$3" < "$run/log" &
    exec 2> "$run/log"
fi
if [ "$4" != 0 ]; then
    exec sh ../../servers/quota.sh "$4" Rscript app.R
fi
exec Rscript app.R
