#!/bin/bash
# node.sh: the first process of a node. It has mounts, processes, names and IPC of its
# own, and the host's network; HOST, DIR, LAB and READY are told (lab.Config.HostInit).
# Kubelet and containerd use paths of a whole machine: here they find directories of
# the node's own there. With this process all of the node's processes and mounts end.
set -euo pipefail
hostname "$HOST"
mount --make-rprivate /
keep=$DIR/node
mkdir -p "$keep"/{lib,log,opt,sysctl}
mount -t proc proc /proc
mount -t tmpfs tmpfs /mnt # to hold mounts that others would cover
mkdir /mnt/cgroup /mnt/lab

# Interfaces of the host's network, and the machine's control groups.
mount --rbind /sys/fs/cgroup /mnt/cgroup
mount -t sysfs sysfs /sys
mount --rbind /mnt/cgroup /sys/fs/cgroup

mount --rbind /run/contivlab /mnt/lab
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /run/netns /run/lock /run/containerd /run/contivlab
mount --rbind /mnt/lab /run/contivlab # where DIR is, too
for d in lib log; do mount --bind "$keep/$d" /var/$d; done
mount --bind "$keep/opt" /opt
mkdir -p /var/lib/kubelet /var/lib/containerd /var/log/pods /var/log/containers /opt/containerd

# The kubelet sets these for the whole machine: it gets files in their place.
for s in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	f=$keep/sysctl/${s%%=*}
	mkdir -p "${f%/*}"
	echo "${s#*=}" >"$f"
	mount --bind "$f" "/proc/sys/${s%%=*}"
done
mount --make-rshared /

# The node's control group, in each of the first version's hierarchies.
for h in /sys/fs/cgroup/*/; do
	[[ $(stat -f -c %T "$h") == cgroupfs ]] || continue
	at=${h%/}
	for g in contiv-kube "$LAB" "$HOST"; do
		at+=/$g
		mkdir -p "$at"
		[[ ! -e $at/cpuset.cpus ]] || for f in cpuset.cpus cpuset.mems; do cat "${at%/*}/$f" >"$at/$f"; done
	done
done

trap 'exit 0' TERM
touch "$READY"
while :; do
	sleep 3600 &
	wait $! || true # and for whoever lost its parent
done
