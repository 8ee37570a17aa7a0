#!/usr/bin/env bash
# A mount by a program for aarch64 under qemu: mount.sh PROGRAM CONTAINER. What qemu cannot do is SKIPPED, with what the
# program says; it has no FUSE_DEV_IOC_CLONE, so that the event loops share a descriptor. Runs in the namespaces of
# scripts/arm64-debian, with which a mount that is left ends.
set -uo pipefail
program=$1 container=$2 point=$(mktemp -d) passed=0 failed=0

check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED $what"; fi
}
same() { "$program" cat "$container" "$1" | cmp - "$point/$1"; }

if said=$("$program" mount "$container" "$point" 2>&1); then
    check 'it is a mount' grep -q " $point fuse.fzmfs ro,nosuid,nodev" /proc/mounts
    check 'decoded bytes' same data.raw
    check 'an array' same data.npy
    check 'a description' same info.json
    check 'NumPy maps the array' python3 -c 'import numpy, sys; print(numpy.load(sys.argv[1], mmap_mode="r").shape)' "$point/data.npy"
    check 'it is listed' grep -q "$point" <("$program" list)
    check 'it unmounts' "$program" umount "$point"
else
    echo "SKIPPED the mount: ${said//$'\n'/; }"
fi
echo "test result: $passed passed; $failed failed"
[ "$failed" = 0 ]
