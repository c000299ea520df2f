# h2load.sh FLAGS...: runs h2load with a log and prints percentiles of the logged times.
rm -f log.tsv
h2load --log-file=log.tsv "$@" || exit
cut -f3 log.tsv | sort -n | awk '{ us[NR] = $1 }
     function rank(q,   n) { n = int(q * NR); return n < q * NR ? n + 1 : n }
     END { if (NR) { print "p50", us[rank(0.5)], "us"; print "p99", us[rank(0.99)], "us" } }'
