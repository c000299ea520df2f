# build.sh: compiles the service.
set -eu
mkdir -p target
g++ -std=c++17 -O2 -Wall -o target/observatory main.cpp -I "$(pg_config --includedir)" \
    -lcpprest -lboost_system -lboost_thread -lssl -lcrypto -lpq -lz -lpthread
