# start.sh RUN PORT http|https
set -eu
h2o --version | sed 's/h2o version/H2O/; q' > "$1/version"
ssl=
if [ "$3" = https ]; then
    ssl="ssl: { certificate-file: $1/cert.pem, key-file: $1/key.pem }"
fi
cat > "$1/h2o.conf" << END
listen:
  host: 127.0.0.1
  port: $2
  $ssl
num-threads: 2
access-log: { path: $1/access.log, format: "%H %s" }
hosts:
  default:
    paths:
      /:
        mruby.handler: |
          Proc.new { |env| [200, { "content-type" => "text/plain" }, ["Hello World"]] }
END
exec h2o -c "$1/h2o.conf"
