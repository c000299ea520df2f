# build.sh: builds the service.
set -eu
mkdir -p target
g++ -std=c++17 -O2 -I"$(pg_config --includedir)" main.cpp -o target/sensors -lpq -pthread
