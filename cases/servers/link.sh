# link.sh RATE COMMAND...: runs a command in its own network namespace, behind a link of this rate
# (`50mbit`). Needs root.
set -eu
rate=$1
shift
link=$(ip -o link show up | sed -n 's/^[0-9]*: \([^:@]*\).*/\1/p' | grep -v '^lo$')
# The queue is as long as in home routers. A shorter queue would drop packets with many connections.
tc qdisc add dev "$link" root tbf rate "$rate" burst 32kbit latency 400ms
exec "$@"
