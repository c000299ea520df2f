# start.sh RUN LOG_RATE QUOTA: starts the upstream, which responds at once, and then the service. If
# LOG_RATE is not 0, it is the number of bytes per second that a log collector reads. If QUOTA is not
# 0, it is a CPU quota in microseconds per 100,000 microseconds.
set -eu
port=$(python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])')
echo "server { listen 127.0.0.1:$port; return 200 'sunny'; }" > "$1/listen.conf"
nginx -p "$1" -e stderr -c nginx.conf &
export UPSTREAM="http://127.0.0.1:$port/weather"
if [ "$2" != 0 ]; then
    mkfifo "$1/log"
    python3 ../../servers/slow.py "$2" < "$1/log" &
    exec > "$1/log"
fi
if [ "$3" != 0 ]; then
    exec sh ../../servers/quota.sh "$3" target/release/poem-cabins
fi
exec target/release/poem-cabins
