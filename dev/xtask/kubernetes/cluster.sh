# Starts a Kubernetes cluster with one node, runs a command and ends with it. The caller runs this
# script in new network, mount and process namespaces, so nothing outlives it.
#
# Arguments: directory for state and logs, program with all components, image archive, command.
set -eu
state=$1 kubernetes=$2 images=$3
shift 3

# The addresses exist only in this network namespace. The route leads nowhere, but the kubelet
# requires one.
ip link set lo up
ip link add eth0 type veth peer name eth1
ip address add 10.234.0.1/24 dev eth0
ip link set eth0 up
ip link set eth1 up
ip route add default dev eth0

mkdir -p "$state"/cni "$state"/log
openssl genrsa -out "$state/account.key" 2048 2>/dev/null
echo 'secret,admin,1,"system:masters"' >"$state/tokens.csv"
cat >"$state/kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: trial, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: secret}}]
contexts: [{name: trial, context: {cluster: trial, user: admin}}]
current-context: trial
END
# This host may lack CAP_SYS_RESOURCE and cgroup v2.
cat >"$state/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 10.234.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupsPerQOS: false
cgroupDriver: cgroupfs
clusterDNS: [10.235.0.10]
containerRuntimeEndpoint: unix://$state/containerd.sock
enforceNodeAllocatable: []
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
failCgroupV1: false
failSwapOn: false
featureGates: {KubeletInUserNamespace: true}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
podLogsDir: $state/log/pods
END
cat >"$state/containerd.toml" <<END
version = 2
root = "$state/containerd/root"
state = "$state/containerd/state"
[grpc]
address = "$state/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:1"
restrict_oom_score_adj = true
disable_apparmor = true
disable_hugetlb_controller = true
tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$state/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
END
cat >"$state/cni/bridge.conflist" <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods", "isDefaultGateway": true, "ipam": {
    "type": "host-local", "ranges": [[{"subnet": "10.236.0.0/24"}]], "dataDir": "$state/addresses"}}]}
END

start() {
  name=$1
  shift
  "$@" >"$state/log/$name.log" 2>&1 &
}
# Waits until a command succeeds. On failure, prints the ends of all logs.
await() {
  for _ in $(seq 120); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.5
  done
  echo "did not succeed within 60 s: $*" >&2
  tail --lines 5 "$state"/log/*.log >&2
  exit 1
}

start etcd etcd --data-dir "$state/etcd" --listen-client-urls http://127.0.0.1:2379 \
  --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
start containerd containerd --config "$state/containerd.toml"
start apiserver "$kubernetes" apiserver --etcd-servers http://127.0.0.1:2379 \
  --bind-address 127.0.0.1 --advertise-address 10.234.0.1 --cert-dir "$state/certificates" \
  --service-account-issuer https://trial --service-account-key-file "$state/account.key" \
  --service-account-signing-key-file "$state/account.key" --token-auth-file "$state/tokens.csv" \
  --authorization-mode AlwaysAllow --service-cluster-ip-range 10.235.0.0/24 \
  --kubelet-preferred-address-types InternalIP --disable-admission-plugins ServiceAccount
export KUBECONFIG="$state/kubeconfig"
export FLOODMARK_KUBECTL="$kubernetes kubectl"
await "$kubernetes" kubectl get --raw /readyz
start controllers "$kubernetes" controllers --kubeconfig "$KUBECONFIG" --leader-elect=false \
  --controllers garbage-collector-controller,job-controller,namespace-controller,node-lifecycle-controller,pod-garbage-collector-controller,ttl-after-finished-controller
start scheduler "$kubernetes" scheduler --kubeconfig "$KUBECONFIG" --leader-elect=false
start kubelet "$kubernetes" kubelet --config "$state/kubelet.yaml" --kubeconfig "$KUBECONFIG" \
  --root-dir "$state/kubelet" --cert-dir "$state/certificates" --hostname-override node-1 \
  --node-ip 10.234.0.1
await ctr --address "$state/containerd.sock" --namespace k8s.io images import "$images"
await "$kubernetes" kubectl wait --for condition=Ready node/node-1 --timeout 1s
echo "the cluster is ready: $("$kubernetes" kubectl get nodes --no-headers)"

ended=0
"$@" || ended=$?
# Removes the cgroups of the remaining pods.
"$kubernetes" kubectl delete pods --all --now >/dev/null 2>&1 || true
exit $ended
