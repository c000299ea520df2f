# start.sh RUN LOG_RATE HEAP OPTIONS...: starts the service. If LOG_RATE is not 0, it is the number
# of bytes per second that a log collector reads from the audit log.
set -eu
run=$1
rate=$2
heap=$3
shift 3
if [ "$rate" != 0 ]; then
    mkfifo "$run/audit"
    python3 ../../servers/slow.py "$rate" < "$run/audit" &
fi
exec java "-Xmx$heap" -cp 'target/classes:target/lib/*' app.Main --audit "$run/audit" "$@"
