# start.sh RUN QUOTA OPTIONS...: starts the upstream, which responds after 20 ms, and then the
# service. If QUOTA is not 0, it is a CPU quota in microseconds per 100,000 microseconds.
set -eu
run=$1
quota=$2
shift 2
mkfifo "$run/open" "$run/port"
python3 ../slow-upstream/upstream.py 20 < "$run/open" > "$run/port" &
# The upstream ends when the service does.
exec 3> "$run/open"
read -r port < "$run/port"
set -- target/hertz-wallet -journal "$run/journal" -upstream "http://127.0.0.1:$port/rate" "$@"
if [ "$quota" != 0 ]; then
    exec sh ../../servers/quota.sh "$quota" "$@"
fi
exec "$@"
