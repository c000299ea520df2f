# start.sh RUN PORT http|https: starts HAProxy in front of nginx.
set -eu
haproxy -v | sed -n 's/ version \([^ ]*\).*/ \1/p' | tr -d '\n' > "$1/version"
. ../upstream.sh
cat "$1/cert.pem" "$1/key.pem" > "$1/bundle.pem"
case $3 in http) bind="proto h2" ;; https) bind="ssl crt $1/bundle.pem alpn h2" ;; esac
# With more threads, HAProxy drops log lines: a thread does not wait while another one writes.
cat > "$1/haproxy.cfg" << END
global
    nbthread 1
    log stdout format raw local0
defaults
    mode http
    log global
    option dontlognull
    log-format "%HV %ST"
    timeout client 60s
    timeout connect 5s
    timeout server 60s
frontend edge
    bind 127.0.0.1:$2 $bind
    default_backend application
backend application
    server application 127.0.0.1:$upstream
END
exec haproxy -db -f "$1/haproxy.cfg" > "$1/access.log"
