#!/usr/bin/env bash
# licences.sh PACKAGE...: the licences of the modules that programs are made of, Go's first. It
# fails where a module's licence is none of those that we may pass on.
set -euo pipefail

kind() { # FILE
	case $(tr -s ' \t\n' ' ' <"$1") in
	*"Apache License"*"Version 2.0"*) echo Apache-2.0 ;;
	*"Mozilla Public License"*"2.0"*) echo MPL-2.0 ;;
	*"Redistribution and use in source and binary forms"*) echo BSD ;;
	*"Permission is hereby granted, free of charge"*) echo MIT ;;
	*"Permission to use, copy, modify, and"*"distribute this software"*) echo ISC ;;
	*) return 1 ;;
	esac
}

printf '== Go %s: BSD\n\n%s\n' "$(go env GOVERSION)" "$(<"$(go env GOROOT)/LICENSE")"
modules=$(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' "$@" | sort -u)
while read -r path version dir; do
	[[ -n $path ]] || continue
	found=
	for file in "$dir"/{LICENSE,LICENCE,COPYING}*; do
		[[ -f $file ]] || continue
		found=$(kind "$file") || { echo "licences.sh: $path $version: ${file##*/} is no licence that is allowed" >&2; exit 1; }
		printf '\n== %s %s: %s\n\n%s\n' "$path" "$version" "$found" "$(<"$file")"
	done
	[[ -n $found ]] || { echo "licences.sh: $path $version has no licence" >&2; exit 1; }
	for file in "$dir"/NOTICE*; do
		[[ ! -f $file ]] || printf '\n%s\n' "$(<"$file")"
	done
done <<<"$modules"
