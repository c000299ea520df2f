# curl-loop.sh LOOPS SECONDS URL: runs the published loops for a limited time and counts responses.
loops=$1 seconds=$2 url=$3

one_loop() {
    over= answers=0 failures=0
    # Finish the request in flight.
    trap over=1 TERM
    while [ -z "$over" ]; do
        if sh testit.sh "$url" > /dev/null 2>&1; then
            answers=$((answers + 1))
        else
            failures=$((failures + 1))
        fi
    done
    echo "$answers answers, $failures failures"
}

started=
while [ "$loops" -gt 0 ]; do
    one_loop &
    started="$started $!"
    loops=$((loops - 1))
done
sleep "$seconds"
kill -TERM $started
wait
