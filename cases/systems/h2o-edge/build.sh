# Creates a self-signed RSA-4096 certificate.
set -eu
mkdir -p target
openssl req -x509 -newkey rsa:4096 -nodes -days 36500 -subj /CN=service -addext subjectAltName=DNS:service \
    -keyout target/service.key -out target/service.crt 2> target/openssl.log
