# build.sh: creates a self-signed RSA-4096 certificate and compiles the service.
set -eu
mkdir -p target
openssl req -x509 -newkey rsa:4096 -nodes -days 36500 -subj /CN=service -addext subjectAltName=DNS:service \
    -keyout target/service.key -out target/service.crt 2> target/openssl.log
g++ -std=c++17 -O2 -Wall -o target/prints main.cpp -I "$(pg_config --includedir)" \
    -lcpp-httplib -lssl -lcrypto -lpq -lz -lpthread
