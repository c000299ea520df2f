# start.sh QUOTA OPTIONS...: starts the server. If QUOTA is not 0, it is the server's CPU quota.
set -eu
quota=$1
shift
set -- node server.js "$@"
if [ "$quota" != 0 ]; then
    set -- sh ../../servers/quota.sh "$quota" "$@"
fi
exec "$@"
