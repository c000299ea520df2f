# link.sh RATE COMMAND...: runs a command behind a link of this rate (`50mbit`) in its own network namespace. Needs root.
set -eu
rate=$1
shift
link=$(ip -o link show up | sed -n 's/^[0-9]*: \([^:@]*\).*/\1/p' | grep -v '^lo$')
# As long as the queues of home routers. A shorter queue would drop packets with this many connections.
tc qdisc add dev "$link" root tbf rate "$rate" burst 32kbit latency 400ms
exec "$@"
