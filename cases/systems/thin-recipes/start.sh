# start.sh RUN LOG_RATE HAS_UPSTREAM OPTIONS...: starts Thin. If LOG_RATE is not 0, it is the number
# of bytes per second that a log collector reads. If HAS_UPSTREAM is true, nginx starts as the
# upstream.
set -eu
cd "$(dirname "$0")"
run=$1
rate=$2
has_upstream=$3
shift 3
UPSTREAM=0
if [ "$has_upstream" = true ]; then
    UPSTREAM=$(python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])')
    echo "server { listen 127.0.0.1:$UPSTREAM; return 200 'price'; }" > "$run/listen.conf"
    nginx -p "$run" -e stderr -c nginx.conf &
fi
export UPSTREAM
if [ "$rate" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$rate" < "$run/log" &
    exec 2> "$run/log"
fi
if [ "$THREADS" != 0 ]; then
    set -- "$@" --threaded --threadpool-size "$THREADS"
fi
exec thin "$@" --quiet --rackup config.ru --environment production start
