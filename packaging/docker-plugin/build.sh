#!/bin/sh
# Makes the directory that `docker plugin create NAME DIR` wants: config.json, and rootfs with
# netplugin and the licences beside it, from the directory of built programs.
set -eu
[ $# -eq 3 ] || { echo "usage: build.sh BIN DIR NAME, such as: build.sh bin /tmp/plugin contiv/netplugin:2.0" >&2; exit 2; }
bin=$1 dir=$2 name=$3
here=$(dirname "$0")
base=${name##*/}
[ -x "$bin/netplugin" ] || { echo "build.sh: $bin/netplugin is missing: run make build" >&2; exit 1; }
mkdir -p "$dir/rootfs/var/lib/contiv" "$dir/rootfs/host/run" "$dir/rootfs/tmp"
sed -e "s,@NAME@,$name,g" -e "s,@SOCKET@,${base%%:*},g" "$here/config.json" >"$dir/config.json"
cp "$bin/netplugin" "$dir/rootfs/netplugin"
for licence in "$bin"/LICENSE*; do
	[ ! -e "$licence" ] || cp "$licence" "$dir/rootfs/"
done
