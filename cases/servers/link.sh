# link.sh RATE COMMAND...: runs a command behind a link of so much (`50mbit`): its network namespace, which is its alone. Takes root.
set -eu
rate=$1
shift
link=$(ip -o link show up | sed -n 's/^[0-9]*: \([^:@]*\).*/\1/p' | grep -v '^lo$')
# A queue as deep as those of home routers: of a shorter one so many connections make one that drops.
tc qdisc add dev "$link" root tbf rate "$rate" burst 32kbit latency 400ms
exec "$@"
