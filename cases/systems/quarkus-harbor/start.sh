# start.sh RUN APP LOG_RATE HEAP PROPERTIES...: starts the service with these system properties. If
# LOG_RATE is not 0, it is the number of bytes per second that a log collector reads.
set -eu
run=$1
app=$2
rate=$3
heap=$4
shift 4
if [ "$rate" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$rate" < "$run/log" &
    exec > "$run/log"
fi
if [ "$app" = customs ]; then
    # The upstream ends when the service closes the pipe.
    mkfifo "$run/upstream" "$run/port"
    python3 ../slow-upstream/upstream.py 20 < "$run/upstream" > "$run/port" &
    exec 3> "$run/upstream"
    read -r port < "$run/port"
    set -- "-Dupstream.port=$port" "$@"
fi
exec java "-Xmx$heap" "-Dapp=$app" "$@" -jar target/quarkus-app/quarkus-run.jar
