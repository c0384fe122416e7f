#!/bin/sh
# Restores pgdyno's data from a clone of the ZFS dataset that pgdyno's home lies on.
# It was never tried with ZFS: only its calls were checked, with programs in place of zfs and mount.
#
#   DATASET=tank/pg pgdyno bench --home /tank/pg/pgdyno --restore-command ./zfs.sh
#   DATASET=tank/pg PGDYNO_SLOT=main ./zfs.sh remove       after the study, once for each slot
set -eu
: "${DATASET:?names the dataset of the home, such as tank/pg}"
snapshot=$DATASET@pgdyno-$PGDYNO_SLOT
clone=$DATASET-pgdyno-$PGDYNO_SLOT
mounted=/run/pgdyno-clone-$PGDYNO_SLOT

if [ "${1:-}" != remove ] && mountpoint -q "$PGDYNO_DATA"; then
    umount "$PGDYNO_DATA"
fi
if zfs list "$clone" > /dev/null 2>&1; then
    zfs destroy "$clone"
fi
if zfs list -t snapshot "$snapshot" > /dev/null 2>&1; then
    zfs destroy "$snapshot"
fi
if [ "${1:-}" = remove ]; then
    exit 0
fi

root=$(findmnt --noheadings --output TARGET --target "$PGDYNO_TEMPLATE")
zfs snapshot "$snapshot"
mkdir -p "$mounted" "$PGDYNO_DATA"
zfs clone -o mountpoint="$mounted" "$snapshot" "$clone"
mount --bind "$mounted/${PGDYNO_TEMPLATE#"$root"/}" "$PGDYNO_DATA"
