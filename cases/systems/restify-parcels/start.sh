# start.sh RUN LOG_RATE QUOTA OPTIONS...: starts the upstream, which responds at once, and then the
# service. If LOG_RATE is not 0, it is the number of bytes per second that a log collector reads. If
# QUOTA is not 0, it is a CPU quota in microseconds per 100,000 microseconds.
set -eu
run=$1
log_rate=$2
quota=$3
shift 3
upstream=$(python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])')
echo "server { listen 127.0.0.1:$upstream; return 200 'in transit'; }" > "$run/listen.conf"
nginx -p "$run" -e stderr -c nginx.conf &
if [ "$log_rate" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$log_rate" < "$run/log" &
    exec > "$run/log"
fi
set -- node server.js --upstream "http://127.0.0.1:$upstream/track" "$@"
if [ "$quota" != 0 ]; then
    set -- sh ../../servers/quota.sh "$quota" "$@"
fi
exec "$@"
