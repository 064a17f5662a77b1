#!/usr/bin/env bash
# Installs the Debian/Ubuntu packages that the tests and the demo need, and only
# those that are missing. Says what it does. Starts and enables no service: the
# tests and contivlab run daemons of their own, inside their own namespaces.
set -euo pipefail

# package                  what for
packages=(
  etcd-server             # the lab's store, and one that the store's conformance suite runs on
  iproute2                # namespaces and links
  iputils-ping            # reachability
)
# "deps.sh demo" stops there; "deps.sh demo ovs" (or mixed), and the tests, need the other data plane.
ovs_packages=(
  openvswitch-switch      # ovsdb-server, ovs-vswitchd
)
# The tests need these too.
test_packages=(
  ethtool                 # offload settings of container interfaces
  iperf3                  # traffic under restarts
  containernetworking-plugins # the stock bridge plugin that benchmarks compare with
  busybox-static          # containers' root
  docker.io               # the engines of test/docker, started by hand
  openssh-client          # ssh-keygen, which signs a release
  docker-compose          # the compose example, as users run it
  systemd                 # systemd-analyze, which checks the units
  containerd              # comes with it; named here so that its service stays off
  nftables                # kube-proxy's mode nftables, which benchmarks compare with; its service stays off
  iptables                # a firewall in the way of forwarded packets
  bind9-dnsutils netcat-openbsd iperf conntrack wget # what Kubernetes' own tests run in containers
  prometheus              # promtool, which checks the alert rules; its service stays off
  tcpdump                 # looking at packets when a test fails
  clang-14 llvm-14 libbpf-dev # the test that the committed eBPF objects are what the C makes
)
# "deps.sh bgp" installs the routers that the BGP speaker talks to, besides; their services stay off.
bgp_packages=(frr bird2)
# "deps.sh podman" installs the runtime that the matrix has rows of, besides; its services stay off.
podman_packages=(podman runc)
# "deps.sh packages" installs what test/packages makes machines with, and rpm, besides.
package_packages=(mmdebstrap rpm)
# "deps.sh node" installs what builds the site of the pages, besides, and "deps.sh chromium" the browser of its test.
node_packages=(nodejs npm)
# "deps.sh kernel" installs what test-kernel.sh boots other kernels with, besides.
kernel_packages=(
  qemu-system-x86         # the machine
  kmod                    # modprobe for the guest, depmod for its modules
  xz-utils                # modules come compressed
)
[[ ${1:-test} == demo && ${2:-ebpf} == ebpf ]] || packages+=("${ovs_packages[@]}")
[[ ${1:-test} == demo ]] || packages+=("${test_packages[@]}")
[[ ${1:-test} != bgp ]] || packages+=("${bgp_packages[@]}")
[[ ${1:-test} != podman ]] || packages+=("${podman_packages[@]}")
[[ ${1:-test} != packages ]] || packages+=("${package_packages[@]}")
[[ ${1:-test} != node ]] || packages=("${node_packages[@]}")
[[ ${1:-test} != chromium ]] || packages=(chromium)
[[ ${1:-test} != kernel ]] || packages+=("${kernel_packages[@]}")

if ! command -v dpkg-query >/dev/null; then
  echo "deps: this is no Debian or Ubuntu; install by hand: ${packages[*]}" >&2
  exit 0
fi
missing=()
for p in "${packages[@]}"; do
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || missing+=("$p")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "deps: all ${#packages[@]} packages are installed"
  exit 0
fi

root=()
if [[ $EUID -ne 0 ]]; then
  command -v sudo >/dev/null || { echo "deps: run as root to install: ${missing[*]}" >&2; exit 1; }
  root=(sudo)
fi
echo "deps: installing ${missing[*]} (services stay stopped and disabled)"

# A policy of 101 ("action forbidden by policy") keeps maintainer scripts from
# starting daemons; see /usr/share/doc/init-system-helpers/README.policy-rc.d.gz.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee "$policy" >/dev/null
  "${root[@]}" chmod 755 "$policy"
  trap '"${root[@]}" rm -f "$policy"' EXIT
fi
log=$(mktemp)
if ! { "${root[@]}" apt-get -o Acquire::Retries=3 update -q &&
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 install -qy --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  cat "$log" >&2
  rm -f "$log"
  exit 1
fi
rm -f "$log"

# Only what this run installed: a service that was there before is not ours.
for p in "${missing[@]}"; do
  dpkg-query -L "$p" | sed -n 's,^.*/systemd/system/\([^/@]*\.\(service\|socket\)\)$,\1,p' | sort -u | while read -r unit; do
    if [[ -d /run/systemd/system ]]; then
      "${root[@]}" systemctl disable --now "$unit" >/dev/null 2>&1 || true
    else
      "${root[@]}" find /etc/systemd/system -name "$unit" -type l -delete
    fi
    echo "deps: $unit left disabled"
  done
done
echo "deps: installed ${missing[*]}"
