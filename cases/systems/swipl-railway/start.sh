# start.sh RUN LOG LOG_RATE QUOTA HOST PORT APP WORKERS CONNECTION TICKETS: starts the upstream,
# which responds after 20 ms, and then the timetable. If LOG_RATE is not 0, it is the number of
# bytes per second that a log collector reads. If QUOTA is not 0, it is a CPU quota in microseconds
# per 100,000 microseconds.
set -eu
run=$1
log=$2
rate=$3
quota=$4
shift 4
upstream=$(python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])')
node ../node-http/server.js --port "$upstream" --work 20 &
until python3 -c "from socket import *; create_connection(('127.0.0.1', $upstream))" 2> /dev/null; do
    sleep 0.05
done
file=
if [ "$log" = on ]; then
    file=$run/log
fi
if [ "$rate" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$rate" < "$run/log" &
fi
set -- swipl app.pl "$@" "$file" "http://127.0.0.1:$upstream/weather"
if [ "$quota" != 0 ]; then
    exec sh ../../servers/quota.sh "$quota" "$@"
fi
exec "$@"
