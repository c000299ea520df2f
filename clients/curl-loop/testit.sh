# testit.sh URL: the published script, but for -f, which makes an answer that is no success a failure.
curl -f "$1" 2>&1 > /dev/null
