#!/usr/bin/env bash
# pack.sh ARCHIVE DIR [TAR-FLAG...] FILE...: a tar.gz of files and directories of DIR. The same
# commit and files make the same bytes.
set -euo pipefail
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$(git log -1 --format=%ct)" -C "$2" -c "${@:3}" | gzip -9n >"$1"
