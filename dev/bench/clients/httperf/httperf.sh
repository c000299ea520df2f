# httperf.sh URL CONNECTIONS REQUESTS FLAGS...: runs httperf and prints the percentiles of its histogram.
url=$1 connections=$2 requests=$3
shift 3
case $url in https:*) set -- "$@" --ssl ;; esac
httperf --hog --num-conns="$connections" --num-calls=$((requests / connections)) "$@" > output.txt || exit
cat output.txt
# Each line of the histogram has the midpoint of a bin in ms and a count. Bins are in ascending order.
awk 'function show(q,   i, seen) {
         for (i = 1; i <= bins; i++) { seen += count[i]; if (seen >= q * total) { print "p" q * 100, ms[i] * 1000, "us"; return } }
     }
     /^Connection lifetime histogram/ { inside = 1; next }
     inside && NF == 0 { exit }
     inside && NF == 2 { bins++; ms[bins] = $1; count[bins] = $2; total += $2 }
     END { if (total) { show(0.5); show(0.99) } }' output.txt
