# build.sh: compiles the service.
set -eu
mkdir -p target
g++ -std=c++17 -O2 -Wall -o target/tolls main.cpp -I "$(pg_config --includedir)" \
    -lpistache -lssl -lcrypto -lpq -lz -lpthread
