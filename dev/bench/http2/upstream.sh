# upstream.sh RUN: starts nginx on a free port with its files in the directory RUN, and sets
# `upstream` to the port. Proxies source this script.
upstream=$(python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])')
cat > "$1/upstream.conf" << END
daemon off;
pid nginx.pid;
events { worker_connections 1024; }
http {
    access_log off;
    default_type text/plain;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server { listen 127.0.0.1:$upstream; location / { return 200 "Hello World"; } }
}
END
nginx -p "$1" -e stderr -c upstream.conf -g "user $(id -un);" &
until python3 -c "from socket import *; create_connection(('127.0.0.1', $upstream))" 2> /dev/null; do
    sleep 0.05
done
nginx -v 2>&1 | sed 's/.*: /, with /' >> "$1/version"
