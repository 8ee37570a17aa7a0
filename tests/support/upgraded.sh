# shellcheck shell=bash
# Run in a fresh Debian by scripts/release: /before.deb is installed, mounts /numbers.zst, whose content is /numbers, and is
# replaced by /after.deb while that is read. The old daemon goes on; the new program mounts beside it, and ends both.
install() { apt-get install -qq -y --no-install-recommends "$1" >/dev/null; }
programs() { readlink /proc/[0-9]*/exe | grep '^/usr/bin/fzmfs' | sort; }
mkdir /mnt/before /mnt/after
install /before.deb
before=$(fzmfs --version)
fzmfs mount -o cache=8M,index=off /numbers.zst /mnt/before
exec 3</mnt/before/numbers
dd bs=65536 count=1 status=none <&3 >/tmp/begin

install /after.deb
[ "$(fzmfs --version)" != "$before" ]
[ "$(programs)" = '/usr/bin/fzmfs (deleted)' ]
# The rest of the file: only the old daemon has it.
cat /tmp/begin - <&3 | cmp - /numbers
cmp /mnt/before/numbers /numbers
fzmfs mount -o cache=8M,index=off /numbers.zst /mnt/after
cmp /mnt/after/numbers /numbers
[ "$(programs)" = "$(printf '/usr/bin/fzmfs\n/usr/bin/fzmfs (deleted)')" ]
fzmfs list | grep /mnt/before
fzmfs list | grep /mnt/after

exec 3<&-
fzmfs umount /mnt/before
[ "$(programs)" = /usr/bin/fzmfs ]
# Without its package, a mount goes on as well.
apt-get purge -qq -y fzmfs >/dev/null
cmp /mnt/after/numbers /numbers
umount /mnt/after
