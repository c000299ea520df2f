# start.sh QUOTA: starts the order service. If QUOTA is not 0, it is a CPU quota in microseconds per
# 100,000 microseconds.
set -eu
bun=node_modules/bun/bin/bun.exe
if [ "$1" != 0 ]; then
    exec sh ../../servers/quota.sh "$1" "$bun" server.js
fi
exec "$bun" server.js
