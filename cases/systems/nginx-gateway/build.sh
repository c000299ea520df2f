# Creates an authority, the gateway's RSA-4096 certificate and the upstream's ECDSA certificate.
set -eu
mkdir -p target
cd target

certificate() { # NAME KEY_OPTIONS...
    name=$1
    shift
    openssl req -newkey "$@" -nodes -subj "/CN=$name" -keyout "$name.key" -out "$name.csr" 2> "$name.log"
    openssl x509 -req -in "$name.csr" -CA authority.crt -CAkey authority.key -CAcreateserial \
        -days 36500 -out "$name.crt" 2>> "$name.log"
    cat "$name.crt" "$name.key" > "$name.pem"
}

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 \
    -subj /CN=authority -keyout authority.key -out authority.crt 2> authority.log
certificate gateway rsa:4096
certificate upstream ec -pkeyopt ec_paramgen_curve:P-256
