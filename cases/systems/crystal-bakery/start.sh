# start.sh QUOTA: starts the bakery. If QUOTA is not 0, it is a CPU quota in microseconds per 100,000
# microseconds.
set -eu
if [ "$1" != 0 ]; then
    exec sh ../../servers/quota.sh "$1" target/bakery
fi
exec target/bakery
