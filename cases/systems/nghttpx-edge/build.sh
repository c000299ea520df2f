# build.sh: creates a self-signed RSA-4096 certificate.
set -eu
mkdir -p target
openssl req -x509 -newkey rsa:4096 -nodes -days 36500 -subj /CN=upstream -keyout target/upstream.key \
    -out target/upstream.crt 2> target/openssl.log
