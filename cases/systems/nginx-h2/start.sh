# start.sh RUN SITE DELAY: runs nginx with the configuration in the directory RUN. SITE selects the
# site; see system.toml. DELAY is the response time of the upstream in milliseconds.
set -eu
run=$1
: > "$run/upstream.conf"
case $2 in
proxy)
    port=$(python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])')
    node ../node-http/server.js --port "$port" --work "$3" &
    echo "upstream service { server 127.0.0.1:$port; keepalive 1000; }" > "$run/upstream.conf"
    cat > "$run/site.conf" <<SITE
location / {
    proxy_pass http://service;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
}
SITE
    ;;
page)
    # A page of 6 kB, in which nginx replaces each second character.
    python3 -c 'print("ab" * 3000)' > "$run/page"
    cat > "$run/site.conf" <<SITE
root .;
location / {
    try_files /page =404;
    sub_filter_types *;
    sub_filter_once off;
    sub_filter b c;
}
SITE
    ;;
esac
exec nginx -p "$run" -e stderr -c nginx.conf
