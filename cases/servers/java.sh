# java.sh [OPTIONS OF THE JVM] Faulty ARGUMENTS: java, with Faulty.java compiled once in place of at each start.
set -eu
here=$(dirname "$0")
jar=$here/target/faulty.jar
if ! [ "$jar" -nt "$here/Faulty.java" ]; then
    mkdir -p "$here/target"
    # Others may start at the same time: each compiles for itself, and a whole file takes the place of what was there.
    new=$(mktemp -d "$here/target/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    javac -d "$new/classes" "$here/Faulty.java"
    jar --create --file "$new/faulty.jar" -C "$new/classes" .
    mv "$new/faulty.jar" "$jar"
    rm -rf "$new"
fi
exec java -cp "$jar" "$@"
