#!/usr/bin/env bash
# Runs a driver's tests on kernels that are not this machine's: Debian's own
# packages, downloaded and unpacked (nothing is installed), booted in QEMU (by
# KVM where /dev/kvm can be opened, else emulated) on an initramfs of busybox,
# the compiled tests, and the few programs that these call.
#
#   tools/test-kernel.sh [-suite ebpf|ovs|bandwidth] [-run REGEXP] [SERIES | vmlinuz-package.deb]...
#
# The suite ovs is the Open vSwitch driver's on the kernel's datapath; bandwidth is
# bench/bandwidth, of which REGEXP names the rows: what queues do there, not how fast. SERIES is
# a prefix of a Debian kernel version, such as 6.1 (the default).
# The guest's serial console is the output; its tests' exit code is the
# script's. On failure the log stays, and its place is named.
set -euo pipefail
cd "$(dirname "$0")/.."

tests='.' suite=ebpf
while [[ ${1:-} == -* ]]; do
  case $1 in
    -suite) suite=$2 ;;
    -run) tests=$2 ;;
    *) echo "test-kernel: unknown flag $1; -suite and -run are known" >&2; exit 2 ;;
  esac
  shift 2
done
[[ $# -gt 0 ]] || set -- 6.1
# What the guest has beside busybox, and with how many processors: one where
# packets must meet the switch in the order in which the tests send them.
case $suite in
  ebpf) programs=(ip tc nstat ping iperf3 ethtool modprobe) processors=2 ;;
  ovs) programs=(ip tc ping ethtool modprobe ovsdb-tool ovsdb-server ovs-vswitchd ovs-vsctl ovs-ofctl ovs-appctl ovs-dpctl) processors=1 ;;
  bandwidth) programs=(ip tc ethtool modprobe) processors=2 ;;
  *) echo "test-kernel: unknown suite $suite; ebpf, ovs and bandwidth are known" >&2; exit 2 ;;
esac
for p in qemu-system-x86_64 busybox dpkg-deb depmod xz "${programs[@]}"; do
  command -v "$p" >/dev/null || { echo "test-kernel: $p is missing; tools/deps.sh kernel installs it" >&2; exit 1; }
done
cache=${XDG_CACHE_HOME:-$HOME/.cache}/contiv-kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"

if [[ $suite == bandwidth ]]; then
  CGO_ENABLED=0 go build -o "$work/$suite.test" ./bench/bandwidth
else
  CGO_ENABLED=0 go test -c -o "$work/$suite.test" "./internal/datapath/$suite"
fi

# package SERIES: the path of the newest kernel package of that series.
package() {
  local name
  name=$(apt-cache pkgnames "linux-image-$1." | grep -E '^linux-image-[0-9.]+(-[0-9]+|\+deb[0-9]+)-cloud-amd64$' | sort -V | tail -1)
  [[ -n $name ]] || { echo "test-kernel: apt knows no linux-image-$1*-cloud-amd64; name a .deb instead" >&2; return 1; }
  (cd "$cache" && { compgen -G "${name}_*.deb" >/dev/null || apt-get download -q "$name" >&2; } && echo "$PWD/$(ls -t "${name}"_*.deb | head -1)")
}

# initramfs DIR: busybox, the tests, programs with their libraries, and the
# network modules of the kernel unpacked in DIR.
initramfs() {
  local root=$work/root version lib p
  version=$(basename "$1"/lib/modules/*)
  rm -rf "$root" && mkdir -p "$root"/{bin,sbin,dev,proc,sys,tmp,run,etc,root,test} "$root/lib/modules/$version/kernel/drivers"
  cp -r "$1/lib/modules/$version"/kernel/{net,lib,crypto,arch} "$root/lib/modules/$version/kernel/"
  cp -r "$1/lib/modules/$version/kernel/drivers/net" "$root/lib/modules/$version/kernel/drivers/"
  cp "$1/lib/modules/$version"/modules.{builtin,order} "$root/lib/modules/$version/"
  find "$root/lib/modules" -name '*.ko.xz' -exec xz -dq {} +
  depmod -b "$root" "$version"
  cp "$(command -v busybox)" "$root/bin/busybox"
  for p in "${programs[@]}"; do
    cp -L "$(command -v "$p")" "$root/sbin/$p"
    for lib in $(ldd "$(command -v "$p")" | grep -o '/[^ ]*'); do
      mkdir -p "$root$(dirname "$lib")" && cp -Ln "$lib" "$root$lib"
    done
  done
  mkdir -p "$root/usr" && ln -s ../sbin "$root/usr/sbin"
  if [[ $suite == ovs ]]; then
    mkdir -p "$root/usr/share" && cp -r /usr/share/openvswitch "$root/usr/share/"
  fi
  cp "$work/$suite.test" "$root/test/"
  [[ ! -d internal/datapath/$suite/testdata ]] || cp -r "internal/datapath/$suite/testdata" "$root/test/"
  install -m 755 tools/test-kernel-init.sh "$root/init"
  printf '%s\n' "$tests" >"$root/test/run"
  printf '%s\n' "$suite" >"$root/test/suite"
  (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$work/initramfs"
}

# guest MINUTES ACCELERATOR WORDS: boots the guest with WORDS on its command line. On a
# busy machine an emulated timer may not tick while the kernel looks whether it does,
# which then panics: no_timer_check.
guest() {
  local cpu=max
  [[ $2 == tcg ]] || cpu=host
  timeout "$1" qemu-system-x86_64 -accel "$2" -cpu "$cpu" -smp "$processors" -m 2048 -nodefaults -no-reboot -display none -serial stdio \
    -kernel "$work"/kernel/boot/vmlinuz-* -initrd "$work/initramfs" \
    -append "console=ttyS0 quiet no_timer_check panic=-1 oops=panic $3" </dev/null 2>&1 | stdbuf -oL tr -d '\r' || true
}

failed=0
for series; do
  if [[ $series == *.deb ]]; then deb=$series; else deb=$(package "$series"); fi
  rm -rf "$work/kernel" && dpkg-deb -x "$deb" "$work/kernel"
  initramfs "$work/kernel"
  log=$work/console.log
  accel=tcg
  # A virtual machine's own KVM may be there and yet not get a kernel through its boot.
  if [[ -w /dev/kvm ]] && guest 20s kvm contiv.hello | grep -q '^test-kernel: hello'; then accel=kvm; fi
  echo "test-kernel: suite $suite, $(basename "$deb"), $accel"
  guest 60m "$accel" '' | tee "$log"
  code=$(sed -n 's/^test-kernel: exit \([0-9]*\)$/\1/p' "$log" | tail -1)
  if [[ ${code:-1} -ne 0 ]]; then
    kept=$(mktemp --suffix=.log /tmp/test-kernel-XXXXXX) && cp "$log" "$kept"
    echo "test-kernel: $(basename "$deb"): failed (${code:-the guest did not come to its end}); the console's log is $kept" >&2
    failed=${code:-1}
  fi
done
exit "$failed"
