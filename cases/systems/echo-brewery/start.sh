# start.sh RUN HANDLER FILES LOG_RATE QUOTA OPTIONS...: starts the service. FILES is its limit of open
# files. If LOG_RATE is not 0, it is the number of bytes per second that a log collector reads. If
# QUOTA is not 0, it is a CPU quota in microseconds per 100,000 microseconds.
set -eu
run=$1
handler=$2
files=$3
log_rate=$4
quota=$5
shift 5
if [ "$handler" = malt ]; then
    # The certificate of the upstream.
    openssl req -x509 -newkey rsa:4096 -nodes -subj /CN=malt -keyout "$run/key.pem" -out "$run/cert.pem" 2> "$run/openssl.log"
fi
if [ "$log_rate" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$log_rate" < "$run/log" &
    exec > "$run/log"
fi
set -- target/echo-brewery -run "$run" -handler "$handler" "$@"
if [ "$quota" != 0 ]; then
    set -- sh ../../servers/quota.sh "$quota" "$@"
fi
ulimit -n "$files"
exec "$@"
