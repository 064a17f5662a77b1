#!/usr/bin/env bash
# debian.sh: makes an archive of a bare Debian with systemd, once, and prints where it is.
set -euo pipefail
archive=${XDG_CACHE_HOME:-$HOME/.cache}/contiv/debian-12.tar
if [[ ! -e $archive ]]; then
	mkdir -p "${archive%/*}"
	mmdebstrap --variant=minbase --include=systemd-sysv,iproute2,iputils-ping,rpm bookworm "$archive.new.tar" http://deb.debian.org/debian >&2
	mv "$archive.new.tar" "$archive"
fi
echo "$archive"
