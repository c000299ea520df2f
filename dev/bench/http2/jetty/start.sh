# start.sh RUN PORT http|https
set -eu
sed -n 's/.*<jetty.version>\(.*\)<.*/Jetty \1/p' pom.xml > "$1/version"
openssl pkcs12 -export -passout pass:jetty -in "$1/cert.pem" -inkey "$1/key.pem" -out "$1/key.p12"
exec java -Xmx512m -cp "target/classes:target/lib/*" app.Main "$@"
