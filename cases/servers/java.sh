# java.sh [JVM OPTIONS] Faulty ARGUMENTS: runs java and compiles Faulty.java if it has changed.
set -eu
here=$(dirname "$0")
jar=$here/target/faulty.jar
if ! [ "$jar" -nt "$here/Faulty.java" ]; then
    mkdir -p "$here/target"
    # Several scripts may start at the same time: each compiles its own copy and replaces the jar atomically.
    new=$(mktemp -d "$here/target/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    javac -d "$new/classes" "$here/Faulty.java"
    jar --create --file "$new/faulty.jar" -C "$new/classes" .
    mv "$new/faulty.jar" "$jar"
    rm -rf "$new"
fi
exec java -cp "$jar" "$@"
