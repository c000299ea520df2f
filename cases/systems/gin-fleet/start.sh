# start.sh RUN UPSTREAM LOG_RATE OPTIONS...: starts the upstream, and then the service. UPSTREAM is
# the kind of the upstream; see system.toml. If LOG_RATE is not 0, it is the number of bytes per
# second that a log collector reads.
set -eu
run=$1
upstream=$2
log_rate=$3
shift 3
port=0
case $upstream in
    slow)
        mkfifo "$run/open" "$run/port"
        python3 ../slow-upstream/upstream.py 20 < "$run/open" > "$run/port" &
        # The upstream ends when the service does.
        exec 3> "$run/open"
        read -r port < "$run/port"
        ;;
    nginx)
        port=$(python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])')
        echo "server { listen 127.0.0.1:$port; return 200 'traffic'; }" > "$run/listen.conf"
        nginx -p "$run" -e stderr -c nginx.conf &
        ;;
esac
if [ "$log_rate" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$log_rate" < "$run/log" &
    exec > "$run/log"
fi
exec target/gin-fleet -upstream "http://127.0.0.1:$port/traffic" "$@"
