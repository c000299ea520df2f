# quota.sh MICROSECONDS COMMAND...: runs a command in a control group with this CPU quota per 100,000
# microseconds. Needs root.
set -eu
quota=$1
shift
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    group=/sys/fs/cgroup/floodmark-case-$$
    mkdir "$group"
    echo "$quota 100000" > "$group/cpu.max"
else
    group=/sys/fs/cgroup/cpu/floodmark-case-$$
    mkdir "$group"
    echo 100000 > "$group/cpu.cfs_period_us"
    echo "$quota" > "$group/cpu.cfs_quota_us"
fi
"$@" &
server=$!
echo "$server" > "$group/cgroup.procs"
trap 'kill "$server" 2> /dev/null || true' TERM INT
wait "$server" || true
# Also end its child processes.
while read -r left < "$group/cgroup.procs" && kill -9 "$left" 2> /dev/null; do sleep 0.1; done
rmdir "$group"
