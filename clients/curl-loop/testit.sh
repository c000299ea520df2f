# testit.sh URL: the published script with the flag -f, so that an error status is a failure.
curl -f "$1" 2>&1 > /dev/null
