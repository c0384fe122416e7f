#!/bin/sh
# Restores pgdyno's data by a copy that shares its blocks with the loaded data, on XFS or btrfs.
# It was tried on XFS (reflink=1, the default of mkfs.xfs).
#
#   pgdyno bench --home /mnt/xfs/pgdyno --restore-command ./reflink.sh
set -eu
rm -rf -- "$PGDYNO_DATA"
cp --archive --reflink=always -- "$PGDYNO_TEMPLATE" "$PGDYNO_DATA"
