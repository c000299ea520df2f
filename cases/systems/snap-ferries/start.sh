# start.sh RUN LOG_RATE OPTIONS...: starts the upstream, which responds at once, and then the service
# with these options of GHC's runtime. If LOG_RATE is not 0, it is the number of bytes per second
# that a log collector reads.
set -eu
run=$1
log_rate=$2
shift 2
upstream=$(python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])')
echo "server { listen 127.0.0.1:$upstream; return 200 'calm'; }" > "$run/listen.conf"
nginx -p "$run" -e stderr -c nginx.conf &
export UPSTREAM="http://127.0.0.1:$upstream/weather"
if [ "$log_rate" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$log_rate" < "$run/log" &
    exec 2> "$run/log"
fi
exec target/snap-ferries +RTS "$@"
