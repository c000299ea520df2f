# start.sh RUN RESUME: starts HAProxy with the configuration in the directory RUN and a free port
# for TLS.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

INBOUND=$(free_port)
export INBOUND
reuse=
if [ "$2" = off ]; then
    reuse=no-ssl-reuse
fi
sed "s|{reuse}|$reuse|" "$1/haproxy.cfg" > "$1/filled.cfg"
exec haproxy -q -db -f "$1/filled.cfg"
