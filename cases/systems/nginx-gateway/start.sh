# start.sh RUN SCHEME IDLE: starts the upstream on a free port, and then nginx with the
# configuration in the directory RUN.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

run=$1
scheme=$2
idle=$3

port=$(free_port)
keepalive=
if [ "$idle" != 0 ]; then
    keepalive="keepalive $idle;"
fi
echo "upstream application { server 127.0.0.1:$port; $keepalive }" > "$run/upstream.conf"
cp target/*.pem target/authority.crt "$run"

tls=
if [ "$scheme" = https ]; then
    tls="ssl crt $run/upstream.pem ca-file $run/authority.crt verify required"
fi
bind="bind 127.0.0.1:$port defer-accept $tls"
sed "s|^    bind$|    $bind|" "$run/haproxy.cfg" > "$run/upstream.cfg"
haproxy -q -db -f "$run/upstream.cfg" &
exec nginx -p "$run" -e stderr -c nginx.conf
