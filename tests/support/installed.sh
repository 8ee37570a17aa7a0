# shellcheck shell=bash
# Run in a fresh Debian by scripts/package: /fzmfs.deb is installed, used with /field.fzm, and purged. It leaves nothing.
files() { find / -xdev \( -path /proc -o -path /run -o -path /var/cache -o -path /var/log -o -path /var/lib \) -prune -o -print | sort; }
mkdir /mnt/field
touch /before /after
files >/before
apt-get install -qq -y --no-install-recommends /fzmfs.deb >/dev/null
fzmfs doctor

mount -t fzmfs -o cache=16M,allow_other /field.fzm /mnt/field
grep -q ' /mnt/field fuse.fzmfs ro,nosuid,nodev' /proc/mounts
cmp /mnt/field/data.raw /want
fzmfs list | grep /mnt/field
umount /mnt/field
echo '/field.fzm /mnt/field fzmfs noauto,user,x-systemd.automount 0 0' >/etc/fstab
mount /mnt/field
cmp /mnt/field/data.raw /want
fzmfs umount /mnt/field

man fzmfs | col -b >/tmp/man
grep -q 'read-only directory of decoded files' /tmp/man
man -w mount.fzmfs
zgrep -q '^zstd-sys' /usr/share/doc/fzmfs/THIRD-PARTY-LICENSES.gz
[ "$(bash -c 'set +u; . /usr/share/bash-completion/bash_completion; _completion_loader fzmfs
    COMP_WORDS=(fzmfs umo) COMP_CWORD=1; _fzmfs fzmfs umo fzmfs; echo "${COMPREPLY[@]}"')" = umount ]
fish -c 'complete -C "fzmfs umo"' | grep -q '^umount'
[ "$(zsh -c 'autoload -Uz compinit; compinit -u -D; echo $_comps[fzmfs]')" = _fzmfs ]

apt-get purge -qq -y fzmfs >/dev/null
rm -rf /tmp/man /root/.config /root/.local /root/.cache
files >/after
diff /before /after
