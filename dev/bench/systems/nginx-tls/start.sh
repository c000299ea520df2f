# start.sh DIRECTORY: creates a certificate in DIRECTORY and starts nginx there.
cd "$1" || exit 1
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out cert.pem || exit 1
exec nginx -p "$1" -e stderr -c nginx.conf
