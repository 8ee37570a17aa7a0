#!/bin/sh
# Prolog of Slurm: mounts what the comment of a job asks for, once on each node and as the user of the job.
#
#     sbatch --comment='fzmfs expect=ETAG s3://bucket/field.b2nd' ...
#
# The job reads /run/fzmfs/$SLURM_JOB_ID, and the epilog unmounts it. In slurm.conf:
#
#     Prolog=/etc/slurm/fzmfs.prolog
#     Epilog=/etc/slurm/fzmfs.epilog
#
# /etc/fzmfs/slurm.conf may set AWS_REGION, AWS_ENDPOINT_URL and the like; the user of the job can see them.
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin # Slurm sets none.
set -f
# shellcheck disable=SC2086
set -- ${SLURM_JOB_COMMENT-}
[ "$#" = 3 ] && [ "$1" = fzmfs ] || exit 0
options=$2 source=$3
point=/run/fzmfs/$SLURM_JOB_ID cache=/var/cache/fzmfs/$SLURM_JOB_USER

set -a
if [ -r /etc/fzmfs/slurm.conf ]; then . /etc/fzmfs/slurm.conf; fi
set +a
mkdir -p /run/fzmfs /var/cache/fzmfs
install -d -m 700 -o "$SLURM_JOB_USER" "$point" "$cache"
said=$(runuser -u "$SLURM_JOB_USER" -- fzmfs mount -o "remote_cache=$cache,$options" -- "$source" "$point" 2>&1) || {
    # The job finds no directory then. An error here would take the node out of service.
    rmdir "$point"
    logger -t fzmfs "job $SLURM_JOB_ID: $said"
}
exit 0
